//go:build unix

package cluster_test

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/limits"
)

func TestSlotsAreNotGrantedTwiceByAnEngineThatCameBackWithoutItsLastWords(t *testing.T) {
	t.Parallel()
	m, account := newServer(t), rand.Text()
	a, b := newCaller(t, cluster.SiteAt(m.url()), account), newCaller(t, cluster.SiteAt(m.url()), account)
	a.correct(slots(5, 0), told(limits.Requests, 1000, 1000, 1000))
	a.until(2)
	m.do("SAVE")
	b.until(3)
	m.stop()
	time.Sleep(time.Second)
	m.start()
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); {
		r, _ := a.take(1)
		if r.Granted > 0 {
			t.Fatalf("a sixth of five slots is granted: %+v", r)
		}
		time.Sleep(min(r.Wait, 50*time.Millisecond))
	}
	if r, _ := a.take(1); r.State.Open != 5 {
		t.Errorf("%d calls are open by the engine that came back: want 5", r.State.Open)
	}
}
