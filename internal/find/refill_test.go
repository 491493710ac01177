package find

// What rate a volley shows is no exported question: this test is in the package.

import (
	"math"
	"testing"
	"time"
)

func TestAStrayBesideAFullBucketSetsNoRate(t *testing.T) {
	var shots []shot
	at := func(granted bool) {
		shots = append(shots, shot{at: time.Unix(0, int64(len(shots))*int64(50*time.Millisecond)), granted: granted})
	}
	for i := range 40 { // the bucket is still full
		at(i != 14)
	}
	for i := range 60 { // and then it lets five a second in
		at(i%4 == 3)
	}
	if r := refill(shots); math.Abs(r.perSecond-5) > 0.25 {
		t.Errorf("%.2f a second, by %d grants", r.perSecond, r.grants)
	}
}
