package gate_test

import (
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
)

// bare is a refusal that says nothing.
var bare = gate.Outcome{Kind: gate.RateLimit}

// crowd is a refusal that names concurrency, and the cap if it is not 0.
func crowd(n int64) gate.Outcome {
	return gate.Outcome{Kind: gate.RateLimit, Dimension: gate.Concurrency, Limit: n}
}

// load keeps a provider that takes so many calls at once under full load, and returns how many it refused. An answer
// takes latency, a refusal 5 ms.
type load struct {
	*rig
	takes   int
	latency func(open int) time.Duration
	refusal gate.Outcome
	refused int
	most    int // slots at most
	served  int
	ends    map[*gate.Ticket]time.Time
	no      map[*gate.Ticket]bool
	inside  int
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
			l.queue(gate.Call{})
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
		l.inside--
		l.served++
		l.release(first, gate.Outcome{})
	}
}

func TestSlotsStartAtEightOrWhatIsKnown(t *testing.T) {
	for _, tt := range []struct{ told, start, want int }{{0, 0, 8}, {0, 20, 20}, {5, 0, 5}, {5, 20, 5}, {100, 0, 100}, {0, 1, 1}} {
		r := newRig(t, gate.Config{Limits: gate.Limits{Concurrent: tt.told}, Start: gate.Limits{Concurrent: tt.start}})
		if n := len(r.fill(gate.Call{})); n != tt.want {
			t.Errorf("told %d, start %d: %d calls at once, want %d", tt.told, tt.start, n, tt.want)
		}
	}
}

func TestSlotsAreFoundWithFewRefusalsAndHeld(t *testing.T) {
	for _, tt := range []struct {
		name    string
		takes   int
		refusal gate.Outcome
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
		refusal gate.Outcome
		want    int
	}{
		{"bare, all eight", 8, bare, 7},
		{"bare, five of eight", 5, bare, 4},
		{"named", 6, crowd(0), 5},
		{"the number is said", 8, crowd(3), 3},
		{"a number above ours is no news", 8, crowd(500), 8},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, gate.Config{})
			held := acquireN(r, tt.open)
			r.sleep(5 * time.Millisecond)
			r.release(held[tt.open-1], tt.refusal)
			r.wantSlots(tt.want)
			r.wantEpochs(0)
		})
	}
}

func TestRefusalsOfCallsSentBeforeACutAreIgnored(t *testing.T) {
	r := newRig(t, gate.Config{})
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
	r := newRig(t, gate.Config{})
	held := acquireN(r, 8)
	r.sleep(5 * time.Millisecond)
	r.release(held[7], bare)
	r.wantSlots(7)
	r.wantEpochs(0)
	for _, h := range held[:6] {
		r.release(h, gate.Outcome{})
	}
	r.sleep(5 * time.Millisecond)
	h := r.acquire(gate.Call{}) // the second of seven: slots cannot be what it lacks
	r.sleep(5 * time.Millisecond)
	r.release(h, bare)
	r.wantEpochs(1)
	r.wantSlots(8)
}

func TestAHintedRefusalCutsSlotsOnlyWhereTheyWereFull(t *testing.T) {
	for _, tt := range []struct{ open, want int }{{8, 7}, {7, 6}, {3, 8}} {
		r := newRig(t, gate.Config{})
		held := acquireN(r, tt.open)
		r.sleep(5 * time.Millisecond)
		r.release(held[tt.open-1], hinted(time.Second))
		r.wantEpochs(1)
		r.wantSlots(tt.want)
	}
}

func TestAToldNumberOfSlotsIsKept(t *testing.T) {
	r := newRig(t, gate.Config{Limits: gate.Limits{Concurrent: 20}})
	held := r.fill(gate.Call{})
	r.sleep(5 * time.Millisecond)
	r.release(held[19], bare)
	r.wantSlots(20)
	r.wantEpochs(1)
}

func TestAToldNumberOfSlotsIsNeverExceeded(t *testing.T) {
	l := newLoad(t, gate.Config{Limits: gate.Limits{Concurrent: 12}}, 0, 50*time.Millisecond)
	l.run(time.Minute)
	if l.most != 12 {
		t.Fatalf("up to %d slots, told 12", l.most)
	}
	l = newLoad(t, gate.Config{Limits: gate.Limits{Concurrent: 12}}, 6, 50*time.Millisecond)
	l.refusal = crowd(0)
	l.run(time.Minute)
	if l.most != 12 || l.lane().Slots > 8 {
		t.Fatalf("up to %d slots, now %d; told 12, the provider takes 6", l.most, l.lane().Slots)
	}
}

func TestSlotsGrowByEachAcceptedCallAndThenByATenth(t *testing.T) {
	r := newRig(t, gate.Config{})
	held := r.fill(gate.Call{})
	var seen []int
	r.sleep(20 * time.Millisecond)
	for _, h := range held[:8] { // the seventh and the eighth put the limit to the test
		r.release(h, gate.Outcome{})
		seen = append(seen, r.lane().Slots)
	}
	if seen[5] != 8 || seen[7] < 9 {
		t.Fatalf("slots after each answer: %v: calls sent below 0.8 of the limit say nothing, the others do", seen)
	}
}

// TestAfterARefusalSlotsGrowOneByOne has a cut that was too deep: what was refused is accepted later, and the answers of all
// open calls come at one instant.
func TestAfterARefusalSlotsGrowOneByOne(t *testing.T) {
	r := newRig(t, gate.Config{})
	first := r.fill(gate.Call{})
	r.sleep(400 * time.Millisecond)
	r.release(first[len(first)-1], bare)
	for _, t := range first[:len(first)-1] {
		r.release(t, gate.Outcome{})
	}
	r.wantSlots(7)
	for range 8 {
		open := r.fill(gate.Call{})
		r.sleep(400 * time.Millisecond)
		before := r.lane().Slots
		for _, t := range open {
			r.release(t, gate.Outcome{})
		}
		if n := r.lane().Slots; n > before+1 {
			t.Fatalf("%d slots became %d at one instant", before, n)
		}
	}
	if n := r.lane().Slots; n < 9 {
		t.Errorf("%d slots after three seconds in which none was refused", n)
	}
}

func TestAnUnusedLimitDoesNotGrow(t *testing.T) {
	r := newRig(t, gate.Config{})
	for range 500 {
		held := acquireN(r, 3)
		r.sleep(10 * time.Millisecond)
		for _, h := range held {
			r.release(h, gate.Outcome{})
		}
	}
	r.wantSlots(8)
}

func TestSlotsAreBoundByLittle(t *testing.T) {
	// 20 calls a second of 0.2 s keep 4 busy; more than twice what rate and bucket can feed is of no use.
	l := newLoad(t, gate.Config{Limits: gate.Limits{RPM: 1200, Burst: time.Second}}, 0, 200*time.Millisecond)
	l.run(2 * time.Minute)
	if l.most > 20 {
		t.Fatalf("up to %d slots for 20 calls a second of 0.2 s", l.most)
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
		h := r.acquire(gate.Call{})
		r.sleep(200 * time.Millisecond)
		r.release(h, gate.Outcome{})
	}
	r.take()
	l := &load{rig: r, refusal: bare, ends: make(map[*gate.Ticket]time.Time), no: make(map[*gate.Ticket]bool)}
	l.latency = func(int) time.Duration { return 600 * time.Millisecond }
	before := l.lane().Slots
	lowest, restored := before, 0
	for range 300 {
		l.run(100 * time.Millisecond)
		if n := l.lane().Slots; n < lowest {
			lowest = n
		} else if n >= before && lowest < before {
			restored++
		}
	}
	if lowest >= before || restored == 0 {
		t.Fatalf("%d slots, %d at the lowest, restored at %d of 300 looks", before, lowest, restored)
	}
}

func TestSlotsDoNotGrowBeyondWhatTheBudgetsFeed(t *testing.T) {
	// The bucket held 40 and fills by 10 a second. Answers take a second: 2 × 1 s × (10/s + 10) are of use at most.
	r := newRig(t, gate.Config{Limits: gate.Limits{RPM: 600, Burst: 4 * time.Second}, Start: gate.Limits{Concurrent: 40}})
	held := acquireN(r, 40)
	r.now = r.now.Add(time.Second) // nobody looks meanwhile
	for _, h := range held {
		r.release(h, gate.Outcome{})
	}
	r.wantSlots(40)
}

func TestSlotsNeverFallBelowOne(t *testing.T) {
	r := newRig(t, gate.Config{})
	for range 200 {
		w := r.queue(gate.Call{})
		for !w.Granted() {
			r.sleep(time.Second)
		}
		held := []*gate.Ticket{w}
		if v := r.queue(gate.Call{}); v.Granted() {
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
