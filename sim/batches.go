package sim

import (
	"fmt"
	"math"
	"time"
)

// Batches says how the providers' Batch APIs behave: calls that are handed over together, run later at a lower price, and
// are fetched as a file. The zero value has them without limits but the documented ones, and a batch takes a second.
//
// The server offers OpenAI's (files and batches), Anthropic's (message batches), Gemini's (files and batchGenerateContent)
// and Mistral's (files and batch jobs). The path tells them apart, except that OpenAI and Mistral share /v1/files: what is
// told of a file there has the members of both, and a list that is asked for by page is Mistral's.
//
// A line is answered as the same request would be live, and its result stands in another order than the requests did,
// except Gemini's, who keeps the order. All luck is a pure function of Config.Seed and of the request.
type Batches struct {
	// Latency is the time from the creation of a batch to its end, of which a tenth is validation and the last tenth is
	// writing the results. Zero: 1 s; negative: none. A batch that is cancelled ends a tenth of it later.
	Latency time.Duration

	// MaxRequests and MaxBytes are what one batch may hold. Zero: what the providers document, which is 50,000 requests
	// and 200 MiB (OpenAI), 100,000 and 256 MiB (Anthropic), 2 GiB (Gemini), 1,000,000 requests and 512 MiB (Mistral).
	MaxRequests, MaxBytes int
	// EnqueuedTokens are the tokens of a model that may be in batches that have not ended, counted as [Charge] counts them
	// at admission. OpenAI takes a batch beyond it and fails it; Gemini and Mistral refuse it. Anthropic has no such limit.
	// Zero: no such limit.
	EnqueuedTokens int
	// Pending is the number of requests that may be in batches that have not ended, with Anthropic and Mistral, who refuse
	// a batch beyond it. Zero: no such limit.
	Pending int
	// PerHour refuses batches beyond so many in an hour. Zero: no such limit.
	PerHour int

	// Fail is the share of lines that fail by themselves: a third of them as bad requests, whatever batch they are in, a
	// third as throttled and a third by an error of the server's, which are luck again each time they are handed over.
	Fail float64
	// ExpireEvery has every so many-th batch expire at its end with half of its lines undone, rounded up; of Gemini's, which
	// documents no results of such a batch, with all of them. Zero: none.
	ExpireEvery int
	// FailEvery has every so many-th batch that does not expire fail as a whole, half-way, by an error of the server's. With
	// Anthropic, who has no such state, every line is that error. Zero: none.
	FailEvery int
	// CutResults cuts the first so many downloads of every file of results in the middle of a line: by turns with a length
	// that is not reached, and without one, so that nothing but the lines themselves tells. Zero: none.
	CutResults int
	// LoseResults answers 404 for every file of results, as after its time.
	LoseResults bool
	// ListDelay is how long it takes until a new batch or file shows in lists. Asked for by its id, it is there at once.
	ListDelay time.Duration
	// Drop is the share of uploads and creations that are carried out and whose answer never arrives: the connection breaks.
	Drop float64
}

// withDefaults returns b with its defaults filled in, or an error that names the field which makes no sense.
func (b Batches) withDefaults() (Batches, error) {
	for name, n := range map[string]int{
		"MaxRequests": b.MaxRequests, "MaxBytes": b.MaxBytes, "EnqueuedTokens": b.EnqueuedTokens, "Pending": b.Pending,
		"PerHour": b.PerHour, "ExpireEvery": b.ExpireEvery, "FailEvery": b.FailEvery, "CutResults": b.CutResults,
		"ListDelay": int(b.ListDelay),
	} {
		if n < 0 {
			return b, fmt.Errorf("sim: Config.Batches.%s is %d, below zero", name, n)
		}
	}
	for name, p := range map[string]float64{"Fail": b.Fail, "Drop": b.Drop} {
		if math.IsNaN(p) || p < 0 || p > 1 {
			return b, fmt.Errorf("sim: Config.Batches.%s is %v, not a probability", name, p)
		}
	}
	b.Latency = defaultTo(b.Latency, time.Second)
	return b, nil
}

// drop reports whether the answer to the creation of something is lost, so many of the same having been created before.
func (c *Config) drop(what hash, before uint32) bool {
	return c.Batches.Drop > 0 && newLuck(c.Seed, what, before).uniform(drawDrop) < c.Batches.Drop
}

// lineFate is what becomes of a line that runs, which was handed over so often before.
func (c *Config) lineFate(what hash, before uint32) fate {
	share := c.Batches.Fail / 3
	if share == 0 {
		return fateAnswered
	}
	if newLuck(c.Seed, what, 0).uniform(drawBadLine) < share {
		return fateBad
	}
	switch u := newLuck(c.Seed, what, before).uniform(drawLine); {
	case u < share:
		return fateThrottled
	case u < 2*share:
		return fateBroken
	default:
		return fateAnswered
	}
}
