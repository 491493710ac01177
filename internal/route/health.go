package route

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice"
)

const (
	holdTime         = 2 * time.Second  // maximum time for which a rejected key is held while other items are sent with it
	holdProbes       = 2                // requests that are sent with a held key
	maxRejectedItems = 3                // different items whose rejections reject a key
	minPause         = time.Second      // time until a key or account that was left out is probed; doubled each time
	maxPause         = 60 * time.Second // maximum of that time
	maxBlamed        = 1000             // items that are remembered as at fault
	maxFlight        = 10 * time.Minute // time for which requests in flight are waited for
	maxProbe         = 2 * time.Minute  // time after which a probe without an outcome is forgotten
)

// condition says which requests a health admits.
type condition uint8

const (
	open    condition = iota
	held              // a request was rejected for the key, and a few others are to show whether it was about the key
	leftOut           // one request at a time is sent, as a probe
)

// health is what responses show about a key or an account. The zero value is open.
type health struct {
	condition condition
	accepted  time.Time       // departure of the newest request that was accepted
	passed    int             // requests accepted in a row
	rejected  map[string]bool // items rejected since then
	blamed    map[string]bool // items rejected before another one was accepted
	since     time.Time       // outcomes of requests that were sent until then do not open it
	until     time.Time       // end of the hold, or the instant of the next probe
	pause     time.Duration   // between probes
	flying    int             // requests in flight
	probes    int             // requests in flight that were sent while it was not open
	probedAt  time.Time       // departure of the last probe
	out       *Exclusion      // why it is left out
}

// admit reports whether a request may be sent for an item, and counts it if send is set.
func (h *health) admit(now time.Time, item func() string, send bool) bool {
	due := !now.Before(h.until)
	if h.probes > 0 && now.Sub(h.probedAt) >= maxProbe {
		h.probes = 0
	}
	switch h.condition {
	case open:
		if send {
			h.flying++
		}
		return true
	case held:
		if h.rejected[item()] && (!due || h.flying > 0 && now.Sub(h.until) < maxFlight) || !due && h.probes >= holdProbes {
			return false // other items are to show more
		}
	case leftOut:
		if !due || h.probes > 0 {
			return false
		}
	}
	if send {
		h.flying, h.probes, h.probedAt = h.flying+1, h.probes+1, now
	}
	return true
}

// accept notes that a request was accepted. It reports whether the key or account was left out until then.
func (h *health) accept(sent time.Time) (back bool) {
	if sent.After(h.accepted) {
		h.accepted = sent
	}
	h.passed++
	if h.condition == open || !sent.After(h.since) {
		return false
	}
	back = h.condition == leftOut
	if h.blamed == nil || len(h.blamed) >= maxBlamed {
		h.blamed = make(map[string]bool)
	}
	for item := range h.rejected {
		h.blamed[item] = true
	}
	*h = health{accepted: h.accepted, passed: h.passed, blamed: h.blamed, flying: h.flying}
	return back
}

// finish notes that a request has an outcome, and reports whether it was a probe.
func (h *health) finish(now time.Time) (probe bool) {
	h.flying = max(0, h.flying-1)
	if probe = h.probes > 0; probe {
		h.probes--
	}
	if h.condition == leftOut {
		h.until = now.Add(h.pause)
	}
	return probe
}

// verdict is what a rejection for the key proves.
type verdict uint8

const (
	undecided verdict = iota
	ofItem            // other requests with the key are accepted
	ofKey
)

// reject notes that a request was rejected for the key. authenticates is whether its error proves that by itself.
func (h *health) reject(now, sent time.Time, item string, authenticates bool) verdict {
	switch {
	case h.condition == leftOut:
		return ofKey
	case h.accepted.After(sent), h.blamed[item]:
		return ofItem
	case h.accepted.IsZero() && authenticates:
		return ofKey
	}
	if h.rejected == nil {
		h.rejected = make(map[string]bool)
	}
	h.rejected[item] = true
	switch decided := h.condition == held && !now.Before(h.until) && h.flying == 0; {
	case len(h.rejected) >= maxRejectedItems, decided && (len(h.rejected) > 1 || now.Sub(h.accepted) >= maxFlight):
		return ofKey
	case decided:
		return ofItem // the key was accepted just before, and this is the only item that is rejected
	}
	if h.condition == open {
		h.condition, h.since, h.until, h.probes = held, sent, now.Add(holdTime), 0
	}
	return undecided
}

// leaveOut leaves the key or account out until a probe is accepted. probe is whether a probe was rejected.
func (h *health) leaveOut(now time.Time, out *Exclusion, probe bool) {
	if h.condition == leftOut && !probe {
		return // the request was sent before
	}
	h.pause = min(max(2*h.pause, minPause), maxPause)
	h.condition, h.since, h.until, h.probes, h.out, h.rejected, h.passed = leftOut, now, now.Add(h.pause), 0, out, nil, 0
}

// upstream is an upstream of a Router.
type upstream struct {
	Upstream
	index int

	sent, throttles atomic.Int64

	// Guarded by Router.mu:
	account *account
	keys    []health // of each key, or of the only one if there is no key
	turn    int      // the next key
	waiting int      // calls that wait there
}

// account is shared by its upstreams.
type account struct {
	members []int
	health  health
}

// leftOutLocked returns why the upstream is left out; nil: it takes calls.
func (up *upstream) leftOutLocked() *Exclusion {
	if up.account.health.condition == leftOut {
		out := *up.account.health.out
		out.Upstream = up.index
		return &out
	}
	for i := range up.keys {
		if up.keys[i].condition != leftOut {
			return nil
		}
	}
	return up.keys[len(up.keys)-1].out
}

// admitsLocked reports whether a request may be sent for an item.
func (up *upstream) admitsLocked(now time.Time, item func() string) bool {
	return up.account.health.admit(now, item, false) &&
		slices.ContainsFunc(up.keys, func(h health) bool { return h.admit(now, item, false) })
}

// takeKeyLocked returns the next key with which a request may be sent for an item, and counts the request.
func (up *upstream) takeKeyLocked(now time.Time, item func() string) (k int, ok bool) {
	if !up.account.health.admit(now, item, false) {
		return 0, false
	}
	for range up.keys {
		k := up.turn % len(up.keys)
		up.turn = k + 1
		if up.keys[k].admit(now, item, true) {
			up.account.health.admit(now, item, true)
			return k, true
		}
	}
	return 0, false
}

// leaveOutLocked leaves out a key or the account, and returns the events.
func (up *upstream) leaveOutLocked(now time.Time, k int, o *sluice.Outcome, probe bool) (events []Exclusion) {
	out := Exclusion{Upstream: up.index, Kind: o.Kind, Err: o.Err, Whole: true}
	if o.Kind == sluice.QuotaExhausted {
		fresh := up.account.health.condition != leftOut
		up.account.health.leaveOut(now, &out, probe)
		for _, member := range up.account.members {
			if fresh {
				out.Upstream = member
				events = append(events, out)
			}
		}
		return events
	}
	out.Key = k
	fresh := up.keys[k].condition != leftOut
	for i := range up.keys {
		out.Whole = out.Whole && (i == k || up.keys[i].condition == leftOut)
	}
	up.keys[k].leaveOut(now, &out, probe)
	if !fresh {
		return nil
	}
	return []Exclusion{out}
}
