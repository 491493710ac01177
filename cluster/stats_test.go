package cluster_test

import (
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/sluice-llm/sluice/cluster"
)

func TestCallsToTheEngineAreCounted(t *testing.T) {
	m := miniredis.RunT(t)
	c := connect(t, cluster.Config{URL: "redis://" + m.Addr()})
	before := c.Stats()
	if !before.Up || before.Failures != 0 {
		t.Errorf("after it was opened: %+v", before)
	}
	if _, err := c.Status(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := c.Stats()
	n := after.Calls - before.Calls
	if n == 0 || after.Took <= before.Took || after.Within[len(after.Within)-1]-before.Within[len(before.Within)-1] != n {
		t.Errorf("%+v after %+v", after, before)
	}
	for i := 1; i < len(after.Within); i++ {
		if after.Within[i] < after.Within[i-1] {
			t.Errorf("%d calls took no longer than %v, and %d no longer than less", after.Within[i], cluster.StatsBounds()[i], after.Within[i-1])
		}
	}
	m.Close()
	c.Join("account")
	eventually(t, "a call fails", func() bool { s := c.Stats(); return s.Failures > 0 && !s.Up })
	if err := m.Restart(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it answers again", func() bool { return c.Stats().Up })
}
