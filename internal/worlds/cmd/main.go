// Command cmd measures clients in random worlds.
//
//	go run ./internal/worlds/cmd [-n 300] [-seed0 1] [-client knowing] [-class known] [-laws=false] [-loops]
//	go run ./internal/worlds/cmd -world SEED-OR-LINE [-client knowing] [-laws=false] [-trace] [-shrink 1.5]
//	go run ./internal/worlds/cmd [-client knowing] internal/worlds/testdata/*.txt
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/sluice-llm/sluice/internal/worlds"
	"github.com/sluice-llm/sluice/internal/worlds/gated"
)

func clients() map[string]worlds.Maker {
	makers := map[string]worlds.Maker{"knowing": worlds.Knowing, "sluice": gated.Client}
	for name, loop := range worlds.Loops() {
		makers[name] = loop.Maker
	}
	return makers
}

func main() {
	n := flag.Int("n", 300, "play `N` worlds")
	first := flag.Uint64("seed0", 1, "start at seed `N`")
	name := flag.String("client", "knowing", "measure client `NAME`")
	class := flag.String("class", "", "play only worlds of class `NAME`")
	loops := flag.Bool("loops", false, "measure the retry loops as well")
	laws := flag.Bool("laws", true, "draw rate limiters in front of providers")
	line := flag.String("world", "", "play the world of a seed or a `LINE`")
	trace := flag.Bool("trace", false, "print every event of -world")
	shrink := flag.Float64("shrink", 0, "shrink -world while its time is `X` × the optimum, or an invariant is broken")
	flag.Parse()
	draw := worlds.Random
	if !*laws {
		draw = worlds.Basic
	}
	var err error
	switch {
	case flag.NArg() > 0:
		err = scripts(flag.Args(), *name)
	case *line != "":
		err = one(draw, *line, *name, *trace, *shrink)
	default:
		err = survey(draw, *n, *first, *name, *class, *loops)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func find(name string) (worlds.Maker, error) {
	maker, ok := clients()[name]
	if !ok {
		return nil, fmt.Errorf("no client %q", name)
	}
	return maker, nil
}

func survey(draw func(uint64) *worlds.World, n int, first uint64, name, class string, loops bool) error {
	maker, err := find(name)
	if err != nil {
		return err
	}
	start := time.Now()
	scores := worlds.Survey(draw, first, n, class, maker)
	fmt.Printf("%s, seeds %d to %d, %v\n", name, first, first+uint64(n)-1, time.Since(start).Round(time.Millisecond))
	worlds.Print(os.Stdout, scores)
	fmt.Println("worst seeds:")
	for _, s := range worlds.Worst(scores, 10) {
		fmt.Printf("  %d (%s): %s\n", s.Seed, s.Class, summary(s))
	}
	if !loops {
		return nil
	}
	names := []string{}
	for name := range worlds.Loops() {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Println(name)
		worlds.Print(os.Stdout, worlds.Survey(draw, first, n, class, worlds.Loops()[name].Maker))
	}
	return nil
}

func summary(s worlds.Score) string {
	text := fmt.Sprintf("%.3f × %.2fs, %d requests, %d × 429 (%d beyond), %d overloads, %d errors, %d failed, idle %v",
		s.Ratio, s.Optimum.Seconds(), s.Sent, s.Rejected, s.Excess, s.Overload, s.Errors, s.Failed, s.Idle.Round(time.Millisecond))
	if s.Foreign > 0 {
		text += fmt.Sprintf(", foreign %d, refused %d", s.Foreign, s.Refused)
	}
	if s.Stalled > 0 {
		text += fmt.Sprintf(", STALLED: %v", s.Stalled.Round(time.Millisecond))
	}
	if s.Violation != "" {
		text += ", BROKEN: " + s.Violation
	}
	return text
}

func one(draw func(uint64) *worlds.World, line, name string, trace bool, shrink float64) error {
	maker, err := find(name)
	if err != nil {
		return err
	}
	w, err := worlds.Parse(line, draw)
	if err != nil {
		return err
	}
	if shrink > 0 {
		w = worlds.Shrink(w, func(w *worlds.World) bool {
			s := worlds.Judge(w, maker)
			return s.Optimum > time.Second && (s.Ratio >= shrink || s.Failed > 0 || s.Violation != "")
		})
	}
	fmt.Println(w.Line())
	if trace {
		worlds.Play(w, maker, func(format string, args ...any) { fmt.Printf(format+"\n", args...) })
	}
	s := worlds.Judge(w, maker)
	fmt.Printf("%s, %s: %s\n", s.Class, w.Knowledge(), summary(s))
	return nil
}

func scripts(files []string, name string) error {
	maker, err := find(name)
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		s, err := worlds.ParseScript(string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		failures, err := s.Check(maker)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		fmt.Printf("%s: %s\n", filepath.Base(file), summary(worlds.Judge(s.World, maker)))
		for _, failure := range failures {
			fmt.Println("    not", failure)
		}
	}
	return nil
}
