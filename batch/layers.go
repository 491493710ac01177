package batch

import "github.com/sluice-llm/sluice/internal/work"

// layers puts around an account's calls what may spare them, the outermost first: an answer that the output has costs
// least, and one that is kept elsewhere takes no permit. Without any, calls are all there is.
func (b *Batch) layers(calls work.Handler, who answerers) work.Handler {
	var layers []work.Middleware
	if b.cfg.Dedupe {
		layers = append(layers, b.recall)
	}
	if b.cache != nil {
		layers = append(layers, b.cached(who))
	}
	if len(layers) == 0 {
		return calls
	}
	return work.Chain(calls, layers...)
}

// openReuse opens what layers keep outside of the output.
func (b *Batch) openReuse() (err error) {
	if b.cfg.Cache == "" {
		return nil
	}
	if b.cache, err = openCache(b.cfg.Cache, b.log); err != nil {
		return &ConfigError{Field: "Cache", Err: err}
	}
	return nil
}
