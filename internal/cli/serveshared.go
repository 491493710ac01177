package cli

import (
	"context"

	"github.com/sluice-llm/sluice/cluster"
)

// halfOfAll is the part of a limit that all gateways together use while the engine is gone: those that see it still, or count
// otherwise, leave room for as much again.
const halfOfAll = 0.5

// openShared connects to the engine that a gateway shares its quotas by, if there is one.
func (r *serving) openShared(ctx context.Context) (err error) {
	s, file := &r.settings, &r.accounts.settings.file
	if s.redis == "" {
		return nil
	}
	from := "--redis"
	if !r.o.given("redis") {
		from = file.NameOf("serve.redis") + ": serve.redis"
	}
	r.shared, err = openShared(ctx, r.s, s.redis, from, cluster.Config{Role: "serve", Logger: r.s.Logger(r.o.verbose)})
	if err != nil {
		return err
	}
	if !s.failClosed {
		r.shared.fallback = halfOfAll
	}
	r.accounts.shared = r.shared
	return nil
}
