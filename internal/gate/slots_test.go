package gate_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

// bare is a refusal that says nothing.
var bare = limits.Outcome{Kind: limits.RateLimit}

// crowd is a refusal that names concurrency, and the cap if it is not 0.
func crowd(n int64) limits.Outcome {
	return limits.Outcome{Kind: limits.RateLimit, Dimension: limits.Concurrency, Limit: n}
}

// load keeps a provider that takes so many calls at once under full load, and returns how many it refused. An answer
// takes latency, a refusal 5 ms.
type load struct {
	*rig
	takes   int
	latency func(open int) time.Duration
	refusal limits.Outcome
	refused int
	most    int // slots at most
	served  int
	ends    map[*gate.Ticket]time.Time
	no      map[*gate.Ticket]bool
	inside  int
	lag     time.Duration // a call counts for so long after it ended
	ended   []time.Time   // those that may still count
}

func newLoad(t *testing.T, cfg gate.Config, takes int, latency time.Duration) *load {
	return &load{rig: newRig(t, cfg), takes: takes, latency: func(int) time.Duration { return latency }, refusal: bare,
		ends: make(map[*gate.Ticket]time.Time), no: make(map[*gate.Ticket]bool)}
}

func (l *load) run(d time.Duration) {
	l.t.Helper()
	end := l.now.Add(d)
	for {
		for l.lane().Waiting < 4 {
			l.queue(limits.Call{})
		}
		for len(l.ended) > 0 && !l.ended[0].Add(l.lag).After(l.now) {
			l.ended = l.ended[1:]
			l.inside--
		}
		for _, t := range l.take() {
			if l.takes > 0 && l.inside >= l.takes {
				l.no[t] = true
				l.ends[t] = l.now.Add(5 * time.Millisecond)
				continue
			}
			l.inside++
			l.ends[t] = l.now.Add(l.latency(l.inside))
		}
		l.most = max(l.most, l.lane().Slots)
		var first *gate.Ticket
		for t, at := range l.ends {
			if first == nil || at.Before(l.ends[first]) || at.Equal(l.ends[first]) && t.ID < first.ID {
				first = t
			}
		}
		at := end
		if first != nil && l.ends[first].Before(end) {
			at = l.ends[first]
		}
		if n := l.next(); !n.IsZero() && n.Before(at) {
			l.step(n)
			continue
		}
		if l.now = at; at.Equal(end) {
			return
		}
		delete(l.ends, first)
		if l.no[first] {
			delete(l.no, first)
			l.refused++
			l.again(first, l.release(first, l.refusal))
			continue
		}
		l.ended = append(l.ended, l.now)
		l.served++
		l.release(first, limits.Outcome{})
	}
}

func TestSlotsStartAtEightOrWhatIsKnown(t *testing.T) {
	for _, tt := range []struct{ told, start, want int }{{0, 0, 8}, {0, 20, 20}, {5, 0, 5}, {5, 20, 5}, {100, 0, 100}, {0, 1, 1}} {
		r := newRig(t, gate.Config{Limits: limits.Limits{Concurrency: tt.told}, Start: limits.Limits{Concurrency: tt.start}}).warm(400)
		if n := len(r.fill(limits.Call{})); n != tt.want {
			t.Errorf("told %d, start %d: %d calls at once, want %d", tt.told, tt.start, n, tt.want)
		}
	}
}

func TestFewAreTriedAtOnceBeforeTheProviderAcceptsThem(t *testing.T) {
	for told, want := range map[int][]int{0: {2, 4, 8, 8}, 20: {2, 12, 20, 20}} { // half of what is told, and then all
		r := newRig(t, gate.Config{Limits: limits.Limits{Concurrency: told}})
		var sizes []int
		for range want {
			wave := r.fill(limits.Call{})
			sizes = append(sizes, len(wave))
			for _, w := range wave {
				r.release(w, limits.Outcome{})
			}
		}
		if !slices.Equal(sizes, want) {
			t.Errorf("told %d: waves of %v, want %v", told, sizes, want)
		}
	}
}

func TestSlotsAreFoundWithFewRefusalsAndHeld(t *testing.T) {
	for _, tt := range []struct {
		name    string
		takes   int
		refusal limits.Outcome
	}{
		{"fewer than the start, bare", 5, bare},
		{"bare", 9, bare},
		{"many, bare", 60, bare},
		{"named", 12, crowd(0)},
		{"named with its number", 30, crowd(30)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLoad(t, gate.Config{}, tt.takes, 400*time.Millisecond)
			l.refusal = tt.refusal
			l.run(60 * time.Second)
			early := l.refused
			served := l.served
			l.run(60 * time.Second)
			if full := tt.takes * 60 * 10 / 4; l.served-served < full*95/100 {
				t.Errorf("%d calls in a minute, %d would fit", l.served-served, full)
			}
			if early > 16 || l.refused-early > 8 {
				t.Errorf("%d refusals in the first minute, %d in the second", early, l.refused-early)
			}
			if n := l.lane().Slots; n < tt.takes-1 || n > tt.takes+1 {
				t.Errorf("%d slots, the provider takes %d", n, tt.takes)
			}
		})
	}
}

func TestACutIsToOneBelowWhatWasRefused(t *testing.T) {
	for _, tt := range []struct {
		name    string
		open    int
		refusal limits.Outcome
		want    int
		pauses  int // what may be about a rate pauses, too
	}{
		{"bare, all eight", 8, bare, 7, 1},
		{"bare, five of eight", 5, bare, 4, 1},
		{"hinted", 3, hinted(time.Second), 2, 1},
		{"named", 6, crowd(0), 5, 0},
		{"the number is said", 8, crowd(3), 3, 0},
		{"a number above ours is no news", 8, crowd(500), 8, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, gate.Config{}).warm(100)
			held := acquireN(r, tt.open)
			r.sleep(5 * time.Millisecond)
			r.release(held[tt.open-1], tt.refusal)
			r.wantSlots(tt.want)
			r.wantEpochs(tt.pauses)
		})
	}
}

func TestRefusalsOfCallsSentBeforeACutAreIgnored(t *testing.T) {
	r := newRig(t, gate.Config{}).warm(100)
	held := acquireN(r, 8)
	r.sleep(5 * time.Millisecond)
	r.release(held[5], crowd(0)) // sent as the sixth
	r.wantSlots(5)
	for _, h := range held[6:] {
		r.release(h, crowd(0))
	}
	r.wantSlots(5)
	r.wantEpochs(0)
}

func TestABareRefusalBelowTheCutDisprovesItAndPauses(t *testing.T) {
	r := newRig(t, gate.Config{}).warm(100)
	held := acquireN(r, 8)
	r.sleep(5 * time.Millisecond)
	r.release(held[7], bare)
	r.wantSlots(7)
	r.wantEpochs(1)
	for _, h := range held[:6] {
		r.release(h, limits.Outcome{})
	}
	r.sleep(time.Second)
	h := r.acquire(limits.Call{}) // the second of seven: slots cannot be what it lacks
	r.sleep(5 * time.Millisecond)
	r.release(h, bare)
	r.wantEpochs(2)
	r.wantSlots(8)
}

func TestABareRefusalCutsAToldNumberOnlyWhereItWasFull(t *testing.T) {
	for _, tt := range []struct{ open, want, pauses int }{{20, 20, 1}, {10, 20, 1}} {
		r := newRig(t, gate.Config{Limits: limits.Limits{Concurrency: 20}}).warm(20)
		r.sleep(time.Second)
		held := acquireN(r, tt.open)
		r.sleep(5 * time.Millisecond)
		r.release(held[tt.open-1], bare)
		r.wantSlots(tt.want)
		r.wantEpochs(tt.pauses)
	}
}

func TestAToldNumberThatIsTooHighIsFound(t *testing.T) {
	for _, tt := range []struct {
		takes   int
		refusal limits.Outcome
		latency time.Duration
		share   float64 // of what the provider takes
	}{
		{10, bare, 50 * time.Millisecond, 0.95},
		{10, crowd(0), 50 * time.Millisecond, 0.95},
		{10, bare, 500 * time.Millisecond, 0.95},
		{6, crowd(0), 50 * time.Millisecond, 0.95},
		{6, bare, 20 * time.Millisecond, 0.5},
	} {
		l := newLoad(t, gate.Config{Limits: limits.Limits{Concurrency: 12}}, tt.takes, tt.latency)
		l.refusal = tt.refusal
		l.run(30 * time.Second)
		served, refused := l.served, l.refused
		l.run(30 * time.Second)
		if share := float64(l.served-served) / float64(tt.takes) / float64(30*time.Second/tt.latency); share < tt.share {
			t.Errorf("%+v: %.2f of what fits in half a minute", tt, share)
		}
		if l.most > 12 || refused > 60 || l.refused-refused > 55 {
			t.Errorf("%+v: up to %d slots, %d and %d refusals", tt, l.most, refused, l.refused-refused)
		}
	}
}

// A provider that counts a call for a while after it ended is not taken for one that takes fewer.
func TestACallThatCountsLateIsWaitedFor(t *testing.T) {
	l := newLoad(t, gate.Config{Limits: limits.Limits{Concurrency: 8}}, 8, 200*time.Millisecond)
	l.refusal, l.lag = crowd(0), 200*time.Millisecond
	l.run(30 * time.Second)
	served, refused := l.served, l.refused
	l.run(30 * time.Second)
	if full := 8 * 30 * 10 / 4; l.served-served < full*95/100 || l.refused-refused > 3 {
		t.Errorf("%d calls in half a minute, %d would fit; %d and %d refusals", l.served-served, full, refused, l.refused-refused)
	}
}

func TestSlotsDoubleOnceWithTheCallsThatTestThem(t *testing.T) {
	r := newRig(t, gate.Config{}).warm(100)
	var seen []int
	held := r.fill(limits.Call{})
	r.sleep(20 * time.Millisecond)
	for _, h := range held { // the seventh and the eighth put the limit to the test
		r.release(h, limits.Outcome{})
		seen = append(seen, r.lane().Slots)
	}
	if seen[5] != 8 || seen[6] != 16 || seen[7] != 16 {
		t.Fatalf("slots after each answer: %v: calls sent below 0.8 of the limit say nothing, the first of the others does", seen)
	}
}

// TestAfterARefusalSlotsGrowOneByOne has a cut that was too deep: what was refused is accepted later, and the answers of all
// open calls come at one instant.
func TestAfterARefusalSlotsGrowOneByOne(t *testing.T) {
	r := newRig(t, gate.Config{}).warm(100)
	first := r.fill(limits.Call{})
	r.sleep(400 * time.Millisecond)
	r.release(first[len(first)-1], bare)
	for _, t := range first[:len(first)-1] {
		r.release(t, limits.Outcome{})
	}
	r.wantSlots(7)
	for range 20 {
		open := r.fill(limits.Call{})
		r.sleep(400 * time.Millisecond)
		before := r.lane().Slots
		for _, t := range open {
			r.release(t, limits.Outcome{})
		}
		if n := r.lane().Slots; n > before+1 {
			t.Fatalf("%d slots became %d at one instant", before, n)
		}
	}
	if n := r.lane().Slots; n < 9 {
		t.Errorf("%d slots after eight seconds in which none was refused", n)
	}
}

func TestAnUnusedLimitDoesNotGrow(t *testing.T) {
	r := newRig(t, gate.Config{}).warm(100)
	for range 500 {
		held := acquireN(r, 3)
		r.sleep(10 * time.Millisecond)
		for _, h := range held {
			r.release(h, limits.Outcome{})
		}
	}
	r.wantSlots(8)
}

// A known rate needs twice as many slots as it feeds by Little's law, of 10 s before there was an answer.
func TestSlotsOfAKnownRateAreThoseThatItFeeds(t *testing.T) {
	for latency, most := range map[time.Duration]int{200 * time.Millisecond: 420, 30 * time.Second: 1220} {
		l := newLoad(t, gate.Config{Limits: limits.Limits{RPM: 1200, Burst: time.Second}}, 0, latency)
		l.run(4 * time.Minute)
		if served := 20 * (240 - int(latency/time.Second)); l.most > most || l.served < served*95/100 {
			t.Errorf("%v: up to %d slots, %d served; %d are of use, and %d fit", latency, l.most, l.served, most, served)
		}
	}
}

func TestARefusedNumberIsTestedLessAndLessOften(t *testing.T) {
	l := newLoad(t, gate.Config{}, 9, 100*time.Millisecond)
	l.refusal = crowd(0)
	var refused []int
	last := 0
	for range 20 {
		l.run(30 * time.Second)
		refused = append(refused, l.refused-last)
		last = l.refused
	}
	first, late := refused[0], 0
	for _, n := range refused[10:] {
		late += n
	}
	if first < 2 || late > 3 || l.refused > 14 {
		t.Fatalf("refusals per half minute: %v", refused)
	}
}

func TestARaisedCapIsFound(t *testing.T) {
	l := newLoad(t, gate.Config{}, 9, 100*time.Millisecond)
	l.run(10 * time.Second)
	l.takes = 40
	l.run(2 * time.Minute)
	if n := l.lane().Slots; n < 30 {
		t.Fatalf("%d slots two minutes after the cap rose from 9 to 40", n)
	}
}

func TestASilentQueueIsFoundAndNotFed(t *testing.T) {
	// Six are served at once, the rest waits without a word.
	r := newRig(t, gate.Config{})
	l := &load{rig: r, refusal: bare, ends: make(map[*gate.Ticket]time.Time), no: make(map[*gate.Ticket]bool)}
	var free [6]time.Time
	l.latency = func(int) time.Duration {
		first := 0
		for i := range free {
			if free[i].Before(free[first]) {
				first = i
			}
		}
		if free[first].Before(r.now) {
			free[first] = r.now
		}
		free[first] = free[first].Add(400 * time.Millisecond)
		return free[first].Sub(r.now)
	}
	l.run(time.Minute)
	served := l.served
	l.run(time.Minute)
	if l.served-served < 860 {
		t.Errorf("%d calls in a minute, 900 would fit", l.served-served)
	}
	if n := l.lane().Slots; n < 6 || n > 13 {
		t.Errorf("%d slots for a server that works on 6 at once", n)
	}
}

func TestAShrunkLimitIsUndoneWhenThroughputFalls(t *testing.T) {
	// Answers become slow for their own reasons: fewer calls open means fewer answers.
	r := newRig(t, gate.Config{})
	for range 70 { // this is what an answer takes
		h := r.acquire(limits.Call{})
		r.sleep(200 * time.Millisecond)
		r.release(h, limits.Outcome{})
	}
	r.take()
	l := &load{rig: r, refusal: bare, ends: make(map[*gate.Ticket]time.Time), no: make(map[*gate.Ticket]bool)}
	l.latency = func(int) time.Duration { return 600 * time.Millisecond }
	before := l.lane().Slots
	l.run(30 * time.Second)
	if n := l.lane().Slots; n < before {
		t.Fatalf("%d slots, %d before", n, before)
	}
}

func TestSlotsNeverFallBelowOne(t *testing.T) {
	r := newRig(t, gate.Config{})
	for range 200 {
		w := r.queue(limits.Call{})
		for !w.Granted() {
			r.sleep(time.Second)
		}
		held := []*gate.Ticket{w}
		if v := r.queue(limits.Call{}); v.Granted() {
			held = append(held, v)
		} else {
			r.cancel(v)
		}
		for _, h := range held {
			r.release(h, crowd(0))
		}
	}
	if n := r.lane().Slots; n != 1 {
		t.Fatalf("%d slots", n)
	}
}
