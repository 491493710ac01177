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
	s, file := &r.settings, &r.accounts.Settings.File
	if s.redis == "" {
		return nil
	}
	from := "--redis"
	if !r.o.given("redis") {
		from = file.NameOf("serve.redis") + ": serve.redis"
	}
	r.shared, err = openShared(ctx, r.s, cluster.Config{URL: s.redis, Role: "serve", Logger: r.s.Logger(r.o.verbose)}, from)
	if err != nil {
		return err
	}
	if !s.failClosed {
		r.shared.Fallback = halfOfAll
	}
	r.accounts.Share(r.shared)
	return nil
}
