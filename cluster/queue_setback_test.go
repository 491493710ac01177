package cluster_test

import (
	"errors"
	"testing"

	"github.com/sluice-llm/sluice/cluster"
)

func TestACollectorThatWasThoughtDeadDoesNotBringBackAJobThatAnotherFinished(t *testing.T) {
	for _, begun := range []bool{false, true} { // another run of the job
		onEngines(t, func(t *testing.T, at *cluster.Site) {
			slow := at.Aside()
			cfg := cluster.JobConfig{Name: t.Name()}
			finish(t, collect(t, openBriefly(t, at), cfg))
			zero := collect(t, openBriefly(t, at), cfg)
			cluster.Abandon(zero)
			first := collect(t, openBriefly(t, slow), cfg)
			add(t, first, 1)
			slow.Hold(true)
			finish(t, collect(t, openBriefly(t, at), cfg))
			if begun {
				collect(t, openBriefly(t, at), cfg)
			}
			slow.Hold(false)
			for _, err := range first.Results(patient(t)) {
				if !errors.Is(err, cluster.ErrFenced) {
					t.Fatalf("got %v, want ErrFenced", err)
				}
			}
		})
	}
}

func TestThePlacesOfTheDeadAreFreeAlsoWhenTheEnginesClockWasSetBack(t *testing.T) {
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		far := at.Aside()
		cfg := cluster.JobConfig{Name: t.Name()}
		dead := collect(t, openBriefly(t, far), cfg)
		lost := work(t, openBriefly(t, far), t.Name())
		add(t, dead, 1)
		next(t, lost)
		far.Hold(true) // neither is heard of any more
		keys := cluster.KeysOf(t.Name())
		// What the engine wrote an hour from now, it wrote before its clock was set back by an hour.
		execute(t, at, "EVAL", `for _, field in ipairs({'until', 'seen'}) do
	redis.call('HSET', KEYS[1], field, redis.call('HGET', KEYS[1], field) + 3600000)
end
local workers = redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')
for i = 1, #workers, 2 do redis.call('ZADD', KEYS[2], workers[i+1] + 3600000, workers[i]) end`, "2", keys[0], keys[5])
		k := collect(t, openBriefly(t, at), cfg)
		w := work(t, openBriefly(t, at), t.Name())
		add(t, k, 1)
		complete(t, w, next(t, w), "one")
		outcomes(t, k, 1)
		finish(t, k)
		far.Hold(false)
		if err := dead.Finish(t.Context()); !errors.Is(err, cluster.ErrFenced) {
			t.Errorf("the dead collector finished: %v", err)
		}
	})
}
