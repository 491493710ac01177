package account

// Which Scheduler an account has cannot be seen from outside: this test is in the package.

import (
	"errors"
	"testing"

	"github.com/sluice-llm/sluice"
)

func TestAccountsStayOpenWhileTheyAreUsed(t *testing.T) {
	p := &pool{}
	take := func(name string, rpm int) *opened {
		one, err := p.take(sluice.Config{Name: name, Limits: sluice.Limits{RPM: rpm}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return one
	}
	give := func(all ...*opened) error {
		var back []member
		for _, one := range all {
			back = append(back, member{opened: one})
		}
		return p.give(back)
	}
	open := func(one *opened) bool { return !errors.Is(one.scheduler.Resume(), sluice.ErrClosed) }
	a, b := take("a", 5), take("b", 5)
	again := take("a", 7)
	if again != a || a == b || a.scheduler.Snapshot().Limits.RPM != 5 {
		t.Error("an account has two, or other limits before they are set")
	}
	if err := give(a, b); err != nil || !open(a) || open(b) {
		t.Errorf("%v; open: %t, %t", err, open(a), open(b))
	}
	if err := give(again); err != nil || open(a) || len(p.open) != 0 {
		t.Errorf("%v; %d are left", err, len(p.open))
	}
	if fresh := take("a", 5); fresh == a || !open(fresh) {
		t.Error("a closed one is given out")
	} else if err := give(fresh); err != nil {
		t.Error(err)
	}
	if _, err := p.take(sluice.Config{Name: "a", Limits: sluice.Limits{RPM: -1}}, nil); err == nil {
		t.Error("wrong limits are taken")
	}
}
