package cli

// Who has which Scheduler cannot be seen from outside: this test is in the package.

import (
	"errors"
	"testing"

	"github.com/sluice-llm/sluice"
)

func TestSchedulersLiveAsLongAsSomebodyHasThem(t *testing.T) {
	p := &schedulerPool{}
	take := func(name string, rpm int) *pooledScheduler {
		one, err := p.take(&sluice.Config{Name: name, Limits: sluice.Limits{RPM: rpm}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return one
	}
	open := func(one *pooledScheduler) bool { return !errors.Is(one.scheduler.Resume(), sluice.ErrClosed) }
	a, b := take("a", 5), take("b", 5)
	again := take("a", 7)
	if again != a || a == b || a.scheduler.Snapshot().Limits.RPM != 5 {
		t.Error("an account has two, or other limits before they are set")
	}
	if err := p.give([]*pooledScheduler{a, b}); err != nil || !open(a) || open(b) {
		t.Errorf("%v; open: %t, %t", err, open(a), open(b))
	}
	if err := p.give([]*pooledScheduler{again}); err != nil || open(a) || len(p.all) != 0 {
		t.Errorf("%v; %d are left", err, len(p.all))
	}
	if fresh := take("a", 5); fresh == a || !open(fresh) {
		t.Error("a closed one is given out")
	} else if err := p.give([]*pooledScheduler{fresh}); err != nil {
		t.Error(err)
	}
	if _, err := p.take(&sluice.Config{Name: "a", Limits: sluice.Limits{RPM: -1}}, nil); err == nil {
		t.Error("wrong limits are taken")
	}
}
