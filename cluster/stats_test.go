package cluster_test

import (
	"testing"

	"github.com/sluice-llm/sluice/cluster"
)

func TestCallsToTheEngineAreCounted(t *testing.T) {
	inMemory(t, func(t *testing.T, at *cluster.Site) {
		c := openAs(t, at, cluster.Config{})
		before := c.Stats()
		if !before.Up || before.Failures != 0 {
			t.Errorf("after it was opened: %+v", before)
		}
		if _, err := c.Status(t.Context()); err != nil {
			t.Fatal(err)
		}
		after := c.Stats()
		n := after.Calls - before.Calls
		if n == 0 || after.Took < before.Took || after.Within[len(after.Within)-1]-before.Within[len(before.Within)-1] != n {
			t.Errorf("%+v after %+v", after, before)
		}
		for i := 1; i < len(after.Within); i++ {
			if after.Within[i] < after.Within[i-1] {
				t.Errorf("%d calls took no longer than %v, and %d no longer than less", after.Within[i], cluster.StatsBounds()[i], after.Within[i-1])
			}
		}
		at.Down(true)
		c.Join("account")
		eventually(t, "a call fails", func() bool { s := c.Stats(); return s.Failures > 0 && !s.Up })
		at.Down(false)
		eventually(t, "it answers again", func() bool { return c.Stats().Up })
	})
}
