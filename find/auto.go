package find

import "context"

// Auto searches for the number of calls that may be open at once so that none is refused. It always returns what is known
// so far, also beside an error: [ErrTokenBudget], [ErrMaxCost], [ErrNoAnswer], a *FieldError before any call, a
// *provider.Error when the provider will not answer at all, or ctx's cause.
func Auto(ctx context.Context, cfg Config) (*Result, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return &Result{}, err
	}
	p, ctx := newProber(ctx, cfg)
	defer p.stop(nil)
	_, err = p.once(ctx, &shape{name: "real", real: true, prompt: cfg.Prompt, bound: cfg.MinOutputTokens})
	return &Result{Spent: p.spent}, err
}
