package cli

import (
	"errors"
	"os"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/signals"
)

// follow listens to signals, and has the settings read again when their files change or HUP asks for it, which also has the access log
// opened again. Without both, HUP drains.
func (r *serving) follow(drain, cut func()) (stop func()) {
	again := signals.Reread{Files: r.accounts.Settings.Files}
	rotates := r.access != nil && r.settings.access != "-"
	if len(again.Files) > 0 || rotates {
		again.Read = func() signals.Files {
			if rotates {
				r.access.Reopen()
			}
			if len(again.Files) == 0 {
				return nil
			}
			return r.reload()
		}
	}
	return signals.Listen(signals.Config{Drain: func(os.Signal) { drain() }, Abandon: func(os.Signal) { cut() }, Reread: again}).Stop
}

// reload has the gateway serve with the settings as the files say them now. Where they are wrong, it says so and the old ones
// hold.
func (r *serving) reload() signals.Files {
	next, s, err := r.prepare()
	if err != nil {
		var hinted *fault.Error
		r.s.Errorf("sluice: warning: settings are unchanged: %s\n", err)
		if errors.As(err, &hinted) && hinted.Hint != "" {
			r.s.Errorf("hint: %s\n", hinted.Hint)
		}
		return filesOf(next)
	}
	old := r.accounts
	over, err := r.exchange(next, s)
	if err != nil {
		r.s.Warn(errors.Join(err, next.Close()))
		return filesOf(next)
	}
	r.retiring.Go(func() {
		<-over
		r.s.Warn(old.Close())
	})
	explainSettings(r.s, next.Settings, r.o.verbose)
	r.s.Errorf("sluice: settings re-read: %s\n", strings.Join(r.names(), ", "))
	lines, err := next.Settle()
	r.s.Warn(err)
	for _, line := range lines {
		r.s.Errorf("sluice: %s\n", line)
	}
	return next.Settings.Files
}

// exchange has the gateway serve with next from now on. over is closed when the last call of the accounts before is.
func (r *serving) exchange(next *account.Accounts, s *serveSettings) (over <-chan struct{}, err error) {
	if over, err = r.gateway.Swap(r.config(next, s)); err != nil {
		return nil, err
	}
	if err := r.tenants.Set(s.tenants); err != nil { // which the file was checked for
		r.s.Warn(err)
	}
	r.keep(s)
	r.mu.Lock()
	r.accounts, r.settings = next, *s
	r.mu.Unlock()
	r.watch.of(next)
	return over, nil
}

// keep says which of new settings cannot hold yet, and has s keep to what is so.
func (r *serving) keep(s *serveSettings) {
	if r.settings.failClosed != s.failClosed {
		r.s.Errorf("sluice: warning: the new serve.fail_closed applies after a restart: until then, the value is %v\n", r.settings.failClosed)
		s.failClosed = r.settings.failClosed
	}
	for _, fixed := range []struct {
		field     string
		now, next *string
	}{
		{"listen", &r.settings.listen, &s.listen}, {"metrics", &r.settings.watch.metrics, &s.watch.metrics},
		{"access_log", &r.settings.access, &s.access}, {"events", &r.settings.watch.events, &s.watch.events},
		{"redis", &r.settings.redis, &s.redis},
	} {
		if *fixed.now != *fixed.next {
			r.s.Errorf("sluice: warning: the new serve.%s applies after a restart: until then, the value is %q\n", fixed.field, cluster.Redact(*fixed.now))
			*fixed.next = *fixed.now
		}
	}
}

// prepare makes ready what the files say now, and leaves nothing open where that fails: then the accounts only say which files
// were read.
func (r *serving) prepare() (*account.Accounts, *serveSettings, error) {
	next, err := r.accounts.Again()
	if err != nil {
		return next, nil, err
	}
	s, err := r.o.settings(next.Settings)
	if err == nil && len(s.tenants) == 0 && r.tenants.Keyed() {
		err = fault.New(fault.Settings, next.Settings.File.At("serve.tenants", errors.New("the list of tenants is empty now")),
			"list a tenant, or restart the gateway to serve clients without a key")
	}
	if err == nil {
		err = r.openUpstreams(next, &s)
	}
	if err != nil {
		return next, nil, errors.Join(err, next.Close())
	}
	return next, &s, nil
}

// filesOf returns the files of the settings, as they were before they were read; nil if they were not read.
func filesOf(a *account.Accounts) signals.Files {
	if a.Settings == nil {
		return nil
	}
	return a.Settings.Files
}

// drainTimeout is how long open calls may go on.
func (r *serving) drainTimeout() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.settings.drain
}
