// Command bench runs the commands of docs/benchmarks.md again and replaces their output on that page.
//
//	go run ./scripts/bench PATTERN...    runs each command that matches a regular expression, by its text or its heading
//
// A command is a line of code that ends with a backslash. Below it the page says when and where the command ran, and shows its
// output: blocks of code, or tables of an earlier format. Benchmarks with -count are summarised by benchstat. The page is written
// after each command, so that an interruption loses one measurement at most. A command that fails changes nothing.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"strings"
	"time"
)

const page = "docs/benchmarks.md"

// parts matches a heading, or a command with its output.
var parts = regexp.MustCompile("(?m)^## (.*)\n|^`(.*)`\\\\\n(?:\\d{4}-.*\n(?:\n+```\n(?s:.*?)^```\n|\n+(?:\\|.*\n)+)*)?")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench: error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, patterns []string) error {
	if len(patterns) == 0 {
		return errors.New("missing PATTERN")
	}
	wanted, err := regexp.Compile(strings.Join(patterns, "|"))
	if err != nil {
		return err
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	heading, ran := "", false
	for _, part := range parts.FindAllStringSubmatch(string(text), -1) {
		command := part[2]
		if command == "" {
			heading = part[1]
		}
		if command == "" || !wanted.MatchString(heading) && !wanted.MatchString(command) {
			continue
		}
		measured, err := measure(ctx, command)
		if err != nil {
			return fmt.Errorf("%s: %w", command, err)
		}
		text = bytes.Replace(text, []byte(part[0]), []byte("`"+command+"`\\\n"+measured), 1)
		if err := os.WriteFile(page, text, 0o644); err != nil {
			return err
		}
		ran = true
	}
	if !ran {
		return fmt.Errorf("no command of %s matches %s", page, wanted)
	}
	return nil
}

// measure runs a command and returns what the page shows below it.
func measure(ctx context.Context, command string) (string, error) {
	fmt.Fprintln(os.Stderr, "bench:", command)
	where, err := shell(ctx, `echo "$(git rev-parse --short=10 HEAD)$(git diff --quiet HEAD -- . :!docs || echo +), $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)", load $(cut -d' ' -f1 /proc/loadavg)`)
	if err != nil {
		return "", err
	}
	if strings.Contains(command, "-count ") && strings.Contains(command, "-bench ") {
		command += " | go tool benchstat -"
	}
	start := time.Now()
	out, err := shell(ctx, command)
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return fmt.Sprintf("%s UTC at %s, %d cores, %s, took %s.\n\n```\n%s\n```\n", start.UTC().Format("2006-01-02 15:04"), strings.TrimSpace(where),
		runtime.NumCPU(), runtime.Version(), time.Since(start).Round(time.Second), strings.TrimRight(figures(out), "\n")), nil
}

func shell(ctx context.Context, command string) (string, error) {
	out, err := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", command).CombinedOutput()
	return string(out), err
}

// figures drops the lines of go test that hold none.
func figures(output string) string {
	noise := regexp.MustCompile(`(?m)^(goos|goarch|pkg|cpu|PASS|ok|=== \w+|go: downloading)\b.*\n`)
	return regexp.MustCompile(`(?m)^\s+\w+_test\.go:\d+: `).ReplaceAllString(noise.ReplaceAllString(output, ""), "    ")
}
