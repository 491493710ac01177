package sim

import (
	"maps"

	"github.com/sluice-llm/sluice/internal/simbatch"
)

// Stats is what a server saw.
type Stats struct {
	// Requests counts every call that had the right key and form; Invalid
	// those that had not.
	Requests int `json:"requests"`
	Invalid  int `json:"invalid"`
	// Throttled counts those refused by a limit, a storm, for no reason, or
	// for want of money; Refused has the reasons: rpm, rpd, tpm, itpm, otpm,
	// concurrent, storm, stray, spent, and of the invalid auth and
	// bad_request.
	Throttled int            `json:"throttled"`
	Refused   map[string]int `json:"refused"`
	// Of the admitted calls, Answered were answered whole and paid for,
	// Faulted failed by Config.Faults, Abandoned lost their client, and
	// InFlight are open. Peak is the most that were open at once.
	Answered  int `json:"answered"`
	Faulted   int `json:"faulted"`
	Abandoned int `json:"abandoned"`
	InFlight  int `json:"in_flight"`
	Peak      int `json:"peak"`
	// InputTokens were admitted, OutputTokens produced.
	InputTokens  int `json:"input_tokens"`
	OutputTokens int `json:"output_tokens"`
	// Paid is the number of answers paid for by the hash of the request, of
	// which more than one is a duplicate. It is empty under Config.NoStats.
	// A line of a batch that runs is an answer to its request, too.
	Paid map[string]int `json:"paid,omitempty"`
	// LimitReads counts the reads of the account's limits by an admin key, which are no requests.
	LimitReads int `json:"limit_reads,omitempty"`
	// Batches is what the Batch APIs saw. What came live is counted above:
	// Answered.
	Batches simbatch.Stats `json:"batches"`
}

// Stats returns a copy of what the server saw so far.
func (s *Server) Stats() Stats {
	batches, paid := s.batches.Stats()
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	stats.InFlight, stats.Batches, stats.Paid = s.open, batches, paid
	stats.Refused = maps.Clone(s.stats.Refused)
	for hash, account := range s.accounts {
		if account.paid > 0 {
			stats.Paid[hash.String()] += int(account.paid)
		}
	}
	return stats
}

// count notes a request that was not in order.
func (s *Server) count(no *refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Invalid++
	s.stats.Refused[no.name()]++
}
