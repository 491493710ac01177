// Command bench measures the figures of docs/benchmarks.md again, and writes that page.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sluice-llm/sluice/scripts/internal/bench"
)

const usage = `Measure the figures of docs/benchmarks.md again, and write that page.

  go run ./scripts/bench NAME...        measure sections, or single steps as SECTION/STEP
  go run ./scripts/bench --all          measure all, in the order of --list, which says how long that takes
  go run ./scripts/bench --list         name the sections and steps, about how long they take, and when they were measured
  go run ./scripts/bench --render       write the page again from docs/benchmarks.json, and measure nothing

`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// options are what the command line says.
type options struct {
	names                    []string
	all, list, render, quick bool
	rounds                   int
}

// parse reads a command line, or says what is wrong with it.
func parse(args []string, stderr io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, usage)
		flags.PrintDefaults()
	}
	flags.BoolVar(&o.all, "all", false, "measure every section")
	flags.BoolVar(&o.list, "list", false, "name the sections, and measure nothing")
	flags.BoolVar(&o.render, "render", false, "write the page, and measure nothing")
	flags.BoolVar(&o.quick, "quick", false, "shorten what takes long; the page says so")
	flags.IntVar(&o.rounds, "rounds", 0, "run each command so often (0: as usual)")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.names = flags.Args(); len(o.names) == 0 && !o.all && !o.list && !o.render {
		flags.Usage()
		return o, errors.New("nothing is asked for")
	}
	return o, nil
}

// run is the program. Its exit code is 0, 1 where a command failed, 2 for a wrong command line, or 130 where it was interrupted.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	var sections []bench.Section
	if err == nil {
		sections, err = bench.Choose(bench.Sections(), o.names)
	}
	if err != nil {
		fmt.Fprintf(stderr, "bench: error: %v\n", err)
		return 2
	}
	switch err = measure(ctx, o, sections, stdout, stderr); {
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "bench: interrupted: what was measured is kept")
		return 130
	case err != nil:
		fmt.Fprintf(stderr, "bench: error: %s\n", strings.ReplaceAll(err.Error(), "\n", "\nbench: error: "))
		return 1
	}
	return 0
}

// measure does what is asked for, in the module around the working directory.
func measure(ctx context.Context, o options, sections []bench.Section, stdout, stderr io.Writer) error {
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	root, err := bench.Root(here)
	if err != nil {
		return err
	}
	page, kept := filepath.Join(root, "docs", "benchmarks.md"), filepath.Join(root, "docs", "benchmarks.json")
	book, err := bench.Open(kept)
	if err != nil {
		return err
	}
	if o.list {
		fmt.Fprint(stdout, bench.List(sections, book))
		return nil
	}
	save := func() error {
		book.Sort(bench.Sections())
		return errors.Join(book.Save(kept), bench.Replace(page, []byte(bench.Page(bench.Sections(), book))))
	}
	if o.render {
		return save()
	}
	r := bench.Runner{Root: root, Book: book, Save: save, Quick: o.quick, Rounds: o.rounds, Log: stderr}
	for _, s := range sections {
		if ctx.Err() == nil {
			err = errors.Join(err, r.Run(ctx, s))
		}
	}
	return err
}
