package sim

import (
	"maps"

	"github.com/sluice-llm/sluice/internal/simbatch"
)

// Stats contains the counts of a Server.
type Stats struct {
	// Requests counts valid requests. Invalid counts requests with a wrong key, path, header or body.
	Requests int `json:"requests"`
	Invalid  int `json:"invalid"`
	// Throttled counts valid requests that were rejected because of a limit, a storm, Faults.Throttled or SpentAfter. Refused counts
	// all rejections by cause: rpm, rpd, tpm, itpm, otpm, concurrency, storm, stray (Faults.Throttled), spent, and for invalid
	// requests auth and bad_request.
	Throttled int            `json:"throttled"`
	Refused   map[string]int `json:"refused"`
	// Every admitted request counts in one of the following four fields. Peak is the maximum value of InFlight.
	Answered  int `json:"answered"`  // complete and paid responses
	Faulted   int `json:"faulted"`   // failures caused by Config.Faults
	Abandoned int `json:"abandoned"` // requests whose client disconnected
	InFlight  int `json:"in_flight"` // requests in flight
	Peak      int `json:"peak"`
	// InputTokens counts tokens of admitted requests, and OutputTokens counts produced tokens.
	InputTokens  int `json:"input_tokens"`
	OutputTokens int `json:"output_tokens"`
	// Paid counts paid responses by [RequestHash], including lines of batches. A count above 1 means duplicates. With Config.NoStats,
	// Paid is empty.
	Paid map[string]int `json:"paid,omitempty"`
	// LimitReads counts requests that read the limits with an admin key. Requests does not include LimitReads.
	LimitReads int `json:"limit_reads,omitempty"`
	// Batches contains the counts of the Batch APIs. Of the fields above, only Paid includes batches.
	Batches simbatch.Stats `json:"batches"`
}

// Stats returns a copy of the counts so far.
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
