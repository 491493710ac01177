// Command picture makes the picture of the README: it runs the commands in a terminal of its own, keeps what they show in
// run.cast, and draws that as run.svg. Run it at the root of the repository, on Linux:
//
//	go run ./scripts/picture
//	go run ./scripts/picture -draw    draws the recording that is there once more
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/sluice-llm/sluice/scripts/internal/recording"
)

const cast, picture = "docs/pictures/run.cast", "docs/pictures/run.svg"

func main() {
	onlyDraw := flag.Bool("draw", false, "record nothing, and draw the recording that is there")
	flag.Parse()
	if !*onlyDraw {
		exitOn(record())
	}
	exitOn(draw())
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "picture: error:", err)
		os.Exit(1)
	}
}

// record runs the commands in an empty directory, where nothing is known of any provider.
func record() error {
	dir, err := os.MkdirTemp("", "sluice-picture-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	build := exec.Command("go", "build", "-o", dir, "./cmd/sluice")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return err
	}
	prompts, err := os.ReadFile("examples/prompts.jsonl")
	if err != nil {
		return err
	}
	home := filepath.Join(dir, "home")
	if err := os.MkdirAll(filepath.Join(home, "examples"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(home, "examples", "prompts.jsonl"), prompts, 0o644); err != nil {
		return err
	}
	const run = "sluice run --provider sim examples/prompts.jsonl -o out.jsonl"
	rec, err := recording.Record(context.Background(), recording.Config{
		Width: 80, Height: 24, Title: "sluice run is interrupted, and the same command does what is left",
		Dir: home, Env: []string{"PATH=" + dir, "HOME=" + home, "TERM=xterm-256color"},
		Between:  time.Second,
		Commands: []recording.Command{{Text: run, InterruptAfter: 4 * time.Second}, {Text: run}},
	})
	if err != nil {
		return err
	}
	var file bytes.Buffer
	if _, err := rec.WriteTo(&file); err != nil {
		return err
	}
	return os.WriteFile(cast, file.Bytes(), 0o644)
}

func draw() error {
	file, err := os.Open(cast)
	if err != nil {
		return err
	}
	defer file.Close()
	rec, err := recording.Read(file)
	if err != nil {
		return err
	}
	var svg bytes.Buffer
	if err := rec.Draw(&svg); err != nil {
		return err
	}
	return os.WriteFile(picture, svg.Bytes(), 0o644)
}
