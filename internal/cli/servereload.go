package cli

import (
	"errors"
	"os"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/signals"
)

// follow listens to signals, and has the settings read again when their files change or HUP asks for it, which also has the access log
// opened again. Without both, HUP drains.
func (r *serving) follow(drain, cut func()) (stop func()) {
	again := signals.Reread{Files: r.accounts.settings.files}
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
		return next.files()
	}
	old := r.accounts
	over, err := r.exchange(next, s)
	if err != nil {
		r.s.Warn(errors.Join(err, next.Close()))
		return next.files()
	}
	r.retiring.Go(func() {
		<-over
		r.s.Warn(old.Close())
	})
	next.explainLimits(r.s, r.o.verbose)
	r.s.Errorf("sluice: settings re-read: %s\n", strings.Join(r.names(), ", "))
	changes, err := next.settle()
	r.s.Warn(err)
	for _, c := range changes {
		for _, line := range c.text(true) {
			r.s.Errorf("sluice: %s\n", line)
		}
	}
	return next.settings.files
}

// exchange has the gateway serve with next from now on. over is closed when the last call of the accounts before is.
func (r *serving) exchange(next *accounts, s *serveSettings) (over <-chan struct{}, err error) {
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
func (r *serving) prepare() (*accounts, *serveSettings, error) {
	next, err := r.o.account.again(r.accounts)
	if err != nil {
		return next, nil, err
	}
	s, err := r.o.settings(next.settings)
	if err == nil && len(s.tenants) == 0 && r.tenants.Keyed() {
		err = fault.New(fault.Settings, next.settings.file.At("serve.tenants", errors.New("the list of tenants is empty now")),
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

// files are those that settings are of, as they were before they were read; nil: they were not.
func (a *accounts) files() signals.Files {
	if a.settings == nil {
		return nil
	}
	return a.settings.files
}

// settle has the Schedulers that were there before keep to the limits that hold now.
func (a *accounts) settle() (changes []retold, err error) {
	a.tuning.begin()
	defer a.tuning.end()
	for _, t := range a.tuning.all() {
		told := t.scheduler.Snapshot()
		if told.Limits == t.limits && told.Account == t.account {
			continue
		}
		if wrong := t.scheduler.SetLimits(t.limits, t.account); wrong != nil && !errors.Is(wrong, sluice.ErrClosed) {
			err = errors.Join(err, wrong)
			continue
		}
		changes = append(changes, retold{account: t.name(), before: told.Limits, after: t.limits})
	}
	return changes, err
}

// drainTimeout is how long open calls may go on.
func (r *serving) drainTimeout() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.settings.drain
}
