package sim

import (
	"maps"
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
	// Batches is what the Batch APIs saw. What came live is counted above:
	// Answered.
	Batches BatchStats `json:"batches"`
}

// BatchStats is what the Batch APIs saw.
type BatchStats struct {
	// Files were uploaded, and Batches created, those that failed included.
	Files   int `json:"files"`
	Batches int `json:"batches"`
	// Lines are those of batches that passed validation. Of them, Answered and
	// Failed run or will run: the others are in batches that failed, expired or
	// were cancelled before, and cost nothing.
	Lines    int `json:"lines"`
	Answered int `json:"answered"`
	Failed   int `json:"failed"`
	// Repeated counts the lines that were answered before, by custom_id and
	// request, once for every time: what was paid twice. Ran is how often each
	// was answered, by [LineHash]. Both are empty under Config.NoStats.
	Repeated int            `json:"repeated"`
	Ran      map[string]int `json:"ran,omitempty"`
	// Calls counts what was asked for: upload, files, file, content, remove,
	// create, list, get, cancel, results and delete. Refused counts what was
	// refused: auth, bad_request, not_found, per_hour, pending and
	// enqueued_tokens; a batch that OpenAI fails for its tokens is one of them.
	Calls   map[string]int `json:"calls"`
	Refused map[string]int `json:"refused"`
	// Dropped counts the answers that were lost by Batches.Drop, and Cut the
	// files that were cut by Batches.CutResults.
	Dropped int `json:"dropped"`
	Cut     int `json:"cut"`
}

// Stats returns a copy of what the server saw so far.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	stats.InFlight = s.open
	stats.Refused = maps.Clone(s.stats.Refused)
	stats.Paid = map[string]int{}
	for hash, account := range s.accounts {
		if account.paid > 0 {
			stats.Paid[hash.String()] = int(account.paid)
		}
	}
	stats.Batches = s.store.statsLocked()
	return stats
}

// statsLocked is a copy of what the Batch APIs saw.
func (b *batchStore) statsLocked() BatchStats {
	counts := b.counts
	counts.Calls, counts.Refused = maps.Clone(counts.Calls), maps.Clone(counts.Refused)
	counts.Ran = make(map[string]int, len(b.ran))
	for hash, n := range b.ran {
		if n > 0 {
			counts.Ran[hash.String()] = int(n)
			counts.Repeated += int(n) - 1
		}
	}
	return counts
}

// count notes a request that was not in order.
func (s *Server) count(no *refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Invalid++
	s.stats.Refused[no.name()]++
}
