package provider

import (
	"cmp"
	"sync"
	"time"
)

// lanes names the lanes of models that no configuration, registry or table of prices knows. Clients can invent any number of these names,
// so each tenant has only some lanes for them. Models that are known have lanes of their own besides.
type lanes struct {
	mu    sync.Mutex
	used  map[claim]time.Time // when a request last asked for that lane
	count map[string]int      // lanes by tenant
	swept time.Time
}

// claim is a lane that a tenant has.
type claim struct{ tenant, lane string }

const (
	maxLanes   = 200            // of one tenant
	unusedLane = 24 * time.Hour // after which a tenant does not have a lane any more, as Schedulers forget it
	sweepEvery = time.Minute
)

// of returns the lane of that name for a request of a tenant, or the lane of the tenant's other models if it has too many lanes.
func (l *lanes) of(tenant, lane string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, c := time.Now(), claim{tenant, lane}
	if _, has := l.used[c]; !has {
		l.sweep(now)
		if l.count[tenant] >= maxLanes {
			return "other models of " + cmp.Or(tenant, "all")
		}
		l.count[tenant]++
	}
	l.used[c] = now
	return lane
}

// sweep takes lanes that have not been used for unusedLane from their tenants.
func (l *lanes) sweep(now time.Time) {
	if now.Sub(l.swept) < sweepEvery {
		return
	}
	l.swept = now
	for c, used := range l.used {
		if now.Sub(used) < unusedLane {
			continue
		}
		delete(l.used, c)
		if l.count[c.tenant]--; l.count[c.tenant] == 0 {
			delete(l.count, c.tenant)
		}
	}
}
