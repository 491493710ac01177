package telemetry

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/prose"
)

// finished is what became of one item, by its event or by its line in the output.
type finished struct {
	id        string
	member    string // that made the call; "" of an item
	model     string
	kind      sluice.Kind
	message   string // of its failure
	attempts  int
	throttles int
	wait      time.Duration
	cooldown  time.Duration
	backoff   time.Duration
	latency   time.Duration
	usage     sluice.Usage
	cost      float64
	estimated float64 // of cost
	costed    bool
	finish    string
	reused    bool
}

const (
	mostIDs     = 3   // of a kind of failure
	mostLongest = 5   // waits that are named
	mostNames   = 200 // finish reasons, and models, that are told apart
	mostTries   = 10  // that are told apart in a distribution
	otherNames  = "(others)"
)

// items adds up what became of items. The zero value is ready.
type items struct {
	total, ok, reused      int
	throttled, throttledOK int // items that were throttled
	retries, throttles     [mostTries + 1]int
	waits, latencies       times
	longest                []LongWait
	failures               map[sluice.Kind]*Failure
	finish, models         map[string]int
	cooldown, backoff      time.Duration
	usage                  sluice.Usage
	cost, estimated        float64
	costed, free           int // items whose cost is known, and of those the ones that took an answer that was there
}

// LongWait is an item that waited long.
type LongWait struct {
	ID     string `json:"id"`               // ID of the item.
	Member string `json:"member,omitempty"` // Program that sends the requests.
	Wait   int64  `json:"wait_ms"`          // Waiting time of the item or request.
}

// Failure is one kind of failure: how many items failed so, the first few, and what one of them was told.
type Failure struct {
	Kind    string   `json:"kind"`              // Kind of the failure.
	Count   int      `json:"count"`             // Failed items.
	IDs     []string `json:"ids"`               // IDs of the first failed items.
	Message string   `json:"message,omitempty"` // Error message, without keys.
}

func (s *items) add(it *finished) {
	s.total++
	s.retries[min(max(0, it.attempts-1), mostTries)]++
	s.throttles[min(it.throttles, mostTries)]++
	if it.throttles > 0 {
		s.throttled++
	}
	if it.kind == sluice.OK {
		s.ok++
		if it.throttles > 0 {
			s.throttledOK++
		}
		s.finish = countName(s.finish, it.finish)
	} else {
		s.fail(it)
	}
	if it.model != "" { // a refusal does not name it
		s.models = countName(s.models, it.model)
	}
	s.cooldown += it.cooldown
	s.backoff += it.backoff
	s.usage = s.usage.Add(it.usage)
	if it.costed {
		s.cost += it.cost
		s.estimated += it.estimated
		s.costed++
	}
	if it.reused && it.costed {
		s.free++
	}
	if it.reused {
		s.reused++
		return // it neither waited nor was it answered
	}
	s.waits.add(it.wait)
	if it.attempts > 0 {
		s.latencies.add(it.latency)
	}
	s.wait(it)
}

// wait keeps the longest waits.
func (s *items) wait(it *finished) {
	ms := it.wait.Milliseconds()
	if ms == 0 || len(s.longest) == mostLongest && ms <= s.longest[mostLongest-1].Wait {
		return
	}
	i, _ := slices.BinarySearchFunc(s.longest, ms, func(l LongWait, ms int64) int { return cmp.Compare(ms, l.Wait+1) })
	s.longest = slices.Insert(s.longest, i, LongWait{prose.Clip(it.id, mostID), prose.Clip(it.member, mostID), ms})
	s.longest = s.longest[:min(len(s.longest), mostLongest)]
}

func (s *items) fail(it *finished) {
	f := s.failures[it.kind]
	if f == nil {
		f = &Failure{Kind: it.kind.String()}
		if s.failures == nil {
			s.failures = make(map[sluice.Kind]*Failure)
		}
		s.failures[it.kind] = f
	}
	f.Count++
	if len(f.IDs) < mostIDs {
		f.IDs = append(f.IDs, prose.Clip(it.id, mostID))
	}
	if f.Message == "" {
		f.Message = prose.Clip(it.message, mostMessage)
	}
}

// countName counts a name among a bounded number of them.
func countName(byName map[string]int, name string) map[string]int {
	if byName == nil {
		byName = make(map[string]int)
	}
	name = prose.Clip(name, mostID)
	if _, known := byName[name]; !known && len(byName) >= mostNames {
		name = otherNames
	}
	byName[name]++
	return byName
}

const (
	mostID      = 200 // of a name or an id, in bytes
	mostMessage = 500 // of the start of an error, in bytes
)

// Count is how many items needed so many of something; the last of a distribution is of those that needed as many or
// more.
type Count struct {
	Of    int `json:"of"`    // Number of retries or rejections; the last entry includes higher numbers.
	Items int `json:"items"` // Items with this number of retries or rejections.
}

// distribution leaves out what no item needed.
func distribution(counts *[mostTries + 1]int) []Count {
	all := []Count{}
	for of, n := range counts {
		if n > 0 {
			all = append(all, Count{of, n})
		}
	}
	return all
}
