package cli

import (
	"github.com/spf13/pflag"

	"github.com/sluice-llm/sluice/batch"
)

// reuseFlags say which calls are spared.
type reuseFlags struct {
	dedupe bool
}

func (f *reuseFlags) register(fs *pflag.FlagSet) {
	fs.BoolVar(&f.dedupe, "dedupe", false, "call equal requests once, and give all of them the same answer")
}

// fill sets what the flags say.
func (f *reuseFlags) fill(cfg *batch.Config) error {
	cfg.Dedupe = f.dedupe
	return nil
}

// printReuse writes which calls were spared, if any was.
func (sum *summary) printReuse(row func(name, format string, args ...any)) {
	if sum.Deduplicated > 0 {
		row("dedupe", "%s of %s items have another's answer", group(sum.Deduplicated), group(sum.ran))
	}
}
