package simbatch

import (
	"fmt"
	"maps"
	"math"
	"time"
)

// Config says how the Batch APIs behave. The zero value has the documented limits only, and a batch takes a second.
//
// A line gets the response that the same request would get live. Results are in another order than the requests, except
// Gemini's, which keeps the order. Every random choice is a pure function of the seed and of the request.
type Config struct {
	// Latency is the time from the creation of a batch to its end. Validation takes the first tenth, and writing the results
	// the last tenth. A cancelled batch ends a tenth of it later. Zero: 1 s; negative: none.
	Latency time.Duration

	// MaxRequests and MaxBytes limit one batch. Zero: the documented limits, which are 50,000 requests and 200 MiB (OpenAI),
	// 100,000 and 256 MiB (Anthropic), 2 GiB (Gemini).
	MaxRequests, MaxBytes int
	// EnqueuedTokens limits the tokens of a model in unfinished batches, counted as at admission. OpenAI accepts a batch
	// beyond it and fails it, Gemini rejects it, and Anthropic has no such limit. Zero: no limit.
	EnqueuedTokens int
	// Pending limits the requests in unfinished batches. Anthropic rejects a batch beyond it. Zero: no limit.
	Pending int
	// PerHour limits the batches created in an hour. Zero: no limit.
	PerHour int

	// Fail is the share of lines that fail: a third as bad requests, in every batch, a third as throttled and a third by a
	// server error. The latter two are drawn again each time a line is submitted.
	Fail float64
	// ExpireEvery makes every N-th batch expire with half of its lines not run, rounded up. Of Gemini, which documents no
	// results of such a batch, no line runs. Zero: none.
	ExpireEvery int
	// FailEvery makes every N-th batch that does not expire fail half-way by a server error. Anthropic has no such state:
	// there, every line has that error. Zero: none.
	FailEvery int
	// CutResults cuts the first N downloads of each result file in the middle of a line, by turns with a length that is not
	// reached and without a length. Zero: none.
	CutResults int
	// LoseResults answers 404 for every result file, as after its lifetime.
	LoseResults bool
	// ListDelay is the time until lists show a new batch or file.
	ListDelay time.Duration
	// Drop is the share of uploads and creations that succeed but whose response never arrives: the connection breaks.
	Drop float64
}

// Check returns an error that names an invalid field.
func (c Config) Check() error {
	for name, n := range map[string]int{
		"MaxRequests": c.MaxRequests, "MaxBytes": c.MaxBytes, "EnqueuedTokens": c.EnqueuedTokens, "Pending": c.Pending,
		"PerHour": c.PerHour, "ExpireEvery": c.ExpireEvery, "FailEvery": c.FailEvery, "CutResults": c.CutResults,
		"ListDelay": int(c.ListDelay),
	} {
		if n < 0 {
			return fmt.Errorf("sim: Config.Batches.%s is %d, below zero", name, n)
		}
	}
	for name, p := range map[string]float64{"Fail": c.Fail, "Drop": c.Drop} {
		if math.IsNaN(p) || p < 0 || p > 1 {
			return fmt.Errorf("sim: Config.Batches.%s is %v, not a probability", name, p)
		}
	}
	return nil
}

// Stats counts the use of the Batch APIs.
type Stats struct {
	// Files were uploaded, and Batches created, failed ones included.
	Files   int `json:"files"`
	Batches int `json:"batches"`
	// Lines counts the lines of batches that passed validation. Answered and Failed of them run or will run. The other lines are
	// in batches that failed, expired or were cancelled before, and cost nothing.
	Lines    int `json:"lines"`
	Answered int `json:"answered"`
	Failed   int `json:"failed"`
	// Repeated counts the lines that were answered before, by custom_id and request, once for every time. Ran is the number
	// of answers by line: the first 16 bytes in hex of the SHA-256 of its custom_id (Gemini: its key), a line feed and its
	// request. Both are empty without accounts per request.
	Repeated int            `json:"repeated"`
	Ran      map[string]int `json:"ran,omitempty"`
	// Calls counts the operations: upload, files, file, content, remove, create, list, get, cancel, results and delete.
	// Refused counts the rejections: auth, bad_request, not_found, per_hour, pending and enqueued_tokens. A batch that OpenAI
	// fails for its tokens is one of them.
	Calls   map[string]int `json:"calls"`
	Refused map[string]int `json:"refused"`
	// Dropped counts the responses lost by Drop, and Cut the downloads cut by CutResults.
	Dropped int `json:"dropped"`
	Cut     int `json:"cut"`
}

// Stats returns the counts so far, and the number of answers by the hash of the request.
func (h *Handler) Stats() (Stats, map[string]int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	stats, paid := h.stats, map[string]int{}
	stats.Calls, stats.Refused, stats.Ran = maps.Clone(stats.Calls), maps.Clone(stats.Refused), map[string]int{}
	for _, b := range h.batches {
		stats.Lines += len(b.lines)
		for _, i := range b.order[:b.runs] {
			l := &b.lines[i]
			if l.fail != 0 {
				stats.Failed++
				continue
			}
			stats.Answered++
			if !h.noStats {
				paid[l.hash.String()]++
				stats.Ran[hashOf([]byte(l.id+"\n"), l.body).String()]++
			}
		}
	}
	for _, n := range stats.Ran {
		stats.Repeated += n - 1
	}
	return stats, paid
}
