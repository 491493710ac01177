package cli

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/sluice-llm/sluice/batch"
)

// reuseFlags say which calls are spared.
type reuseFlags struct {
	dedupe bool
	cache  string
	warmUp bool
}

func (f *reuseFlags) register(fs *pflag.FlagSet) {
	fs.BoolVar(&f.dedupe, "dedupe", false, "call equal requests once, and give all of them the same answer")
	fs.StringVar(&f.cache, "cache", "", "keep good answers in this directory, and call nobody for what is there")
	fs.BoolVar(&f.warmUp, "warm-up", false, "of prompts that begin alike, let the first go alone, so that the provider keeps that beginning for the others")
}

// fill sets what the flags say.
func (f *reuseFlags) fill(cfg *batch.Config) {
	cfg.Dedupe, cfg.Cache, cfg.WarmUp = f.dedupe, f.cache, f.warmUp
}

// printReuse writes which calls were spared, if any was.
func (sum *summary) printReuse(s *streams) {
	// What was looked for, and had no result before the run stopped, is left to do: whether it would be a hit is for a later run.
	if all := min(sum.Cached+sum.misses, sum.ran-sum.Deduplicated); all > 0 {
		s.row("cache", "%s hits of %s", group(sum.Cached), group(all))
	}
	if sum.Deduplicated > 0 {
		s.row("dedupe", "%s of %s items have another's answer", group(sum.Deduplicated), group(sum.ran))
	}
}

// explainCache says what is wrong with the directory of the cache.
func (e *exitError) explainCache(wrong *batch.ConfigError) {
	e.err = fmt.Errorf("--cache: %w", wrong.Err)
	if e.hint = hintOf(wrong.Err); e.hint == "" {
		e.hint = "give --cache a directory that you can write to"
	}
}
