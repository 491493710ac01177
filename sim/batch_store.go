package sim

import (
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"time"
)

// batchStore is what the Batch APIs keep.
type batchStore struct {
	files   []*batchFile           // that were uploaded, oldest first
	batches []*batch               // oldest first
	results map[string]*resultFile // by id
	uploads map[string]*upload     // Gemini's that have begun
	tries   map[hash]uint32        // at the same upload or creation
	made    uint64                 // ids so far
	counts  BatchStats
	ran     map[hash]int32
}

func newBatchStore() batchStore {
	counts := BatchStats{Calls: map[string]int{}, Refused: map[string]int{}}
	return batchStore{
		counts: counts, results: map[string]*resultFile{}, uploads: map[string]*upload{}, tries: map[hash]uint32{}, ran: map[hash]int32{},
	}
}

// batchFile is a file of requests.
type batchFile struct {
	id      string
	name    string
	purpose string // of OpenAI and Mistral
	gemini  bool
	mime    string // Gemini's
	data    []byte
	hash    hash
	created time.Time
}

// resultFile is a file of results. It is written whenever it is fetched.
type resultFile struct {
	id        string
	batch     *batch
	failures  bool // it has the lines that failed; else, where there are two files, those that did not
	downloads int
	deleted   bool
}

// there reports whether the file exists by now: there is none that has no lines.
func (f *resultFile) there(now time.Time) bool {
	b := f.batch
	if b.phase(now) != phaseEnded || b.outcome == outcomeInvalid || b.outcome == outcomeBroken {
		return false
	}
	if (f.failures || b.api.traits().one) && b.api.traits().lists && b.runs < len(b.lines) {
		return true
	}
	return slices.ContainsFunc(b.order[:b.runs], func(i int32) bool { return f.holds(&b.lines[i]) })
}

// holds reports whether a line that ran stands in the file.
func (f *resultFile) holds(l *batchLine) bool {
	return f.batch.api.traits().one || (l.fate != fateAnswered) == f.failures
}

// write returns what the file has.
func (f *resultFile) write(s *Server) []byte {
	var out []byte
	b := f.batch
	for place, i := range b.order {
		l := &b.lines[i]
		switch {
		case place >= b.runs:
			if (f.failures || b.api.traits().one) && b.api.traits().lists {
				out = b.api.undone(out, l, b.outcome == outcomeExpired)
			}
		case f.holds(l):
			status, body := s.lineAnswer(b, l)
			out = b.api.answered(out, l, status, body)
		}
		if place == 0 && cap(out) < len(out)*len(b.lines) {
			out = slices.Grow(out, len(out)*len(b.lines))
		}
	}
	return out
}

// batch is one batch.
type batch struct {
	id       string
	api      batchAPI
	serial   int // from 1
	created  time.Time
	latency  time.Duration
	model    string // "" while requests name it
	endpoint endpoint
	path     string // of the endpoint
	input    []string
	metadata json.RawMessage
	name     string // Gemini's display name
	tokens   map[string]int

	lines    []batchLine
	order    []int32 // in which they run
	problems []batchProblem
	outcome  outcome
	runs     int // of the lines in order, so many run

	cancelled time.Time
	output    *resultFile
	errors    *resultFile // nil where there is one file
}

func batchID(b *batch) string { return b.id }

// batchProblem is what is wrong with a file of requests.
type batchProblem struct {
	Code    string  `json:"code"`
	Line    *int    `json:"line"`
	Message string  `json:"message"`
	Param   *string `json:"param"`
}

// outcome is how a batch ends.
type outcome int

const (
	outcomeCompleted outcome = iota
	outcomeExpired
	outcomeInvalid // it fails validation
	outcomeBroken  // it fails by an error of the server's
	outcomeCancelled
)

// phase is how far a batch is.
type phase int

const (
	phaseValidating phase = iota
	phaseRunning
	phaseFinishing
	phaseEnded
)

// validated, finished and ended are the instants at which a batch goes on; a tenth of its time each is for validation and
// for the results.
func (b *batch) validated() time.Time { return b.created.Add(b.latency / 10) }
func (b *batch) finished() time.Time  { return b.created.Add(b.latency / 10 * 9) }

func (b *batch) ended() time.Time {
	switch b.outcome {
	case outcomeInvalid:
		return b.validated()
	case outcomeBroken:
		return b.created.Add(b.latency / 2)
	case outcomeCancelled:
		return b.cancelled.Add(b.latency / 10)
	default:
		return b.created.Add(b.latency)
	}
}

func (b *batch) phase(now time.Time) phase {
	switch {
	case !now.Before(b.ended()):
		return phaseEnded
	case now.Before(b.validated()):
		return phaseValidating
	case b.outcome != outcomeCancelled && !now.Before(b.finished()):
		return phaseFinishing
	default:
		return phaseRunning
	}
}

// done is how many of the lines have run by now.
func (b *batch) done(now time.Time) int {
	if !now.Before(b.finished()) || !now.Before(b.ended()) {
		return b.runs
	}
	if now.Before(b.validated()) {
		return 0
	}
	part := float64(now.Sub(b.validated())) / float64(b.finished().Sub(b.validated()))
	return min(b.runs, int(part*float64(len(b.lines))))
}

// tally counts the lines that were answered and those that failed, of those that have run by now.
func (b *batch) tally(now time.Time) (answered, failed int) {
	for _, i := range b.order[:b.done(now)] {
		if b.lines[i].fate == fateAnswered {
			answered++
		} else {
			failed++
		}
	}
	return answered, failed
}

// nextIDLocked returns an id that no other thing has; it does not tell how many there are.
func (s *Server) nextIDLocked() string {
	s.store.made++
	var b [16]byte
	for i := range 8 {
		b[i] = byte(mix(s.config.Seed^s.store.made) >> (8 * i)) // mix is a bijection: no two are alike
		b[8+i] = byte(mix(^s.store.made) >> (8 * i))
	}
	return hex.EncodeToString(b[:])
}

// droppedLocked reports whether the answer to a creation is lost.
func (s *Server) droppedLocked(what hash) bool {
	before := s.store.tries[what]
	s.store.tries[what]++
	lost := s.config.drop(what, before)
	if lost {
		s.store.counts.Dropped++
	}
	return lost
}

// storeLocked keeps a file that was uploaded.
func (s *Server) storeLocked(f *batchFile) {
	f.created, f.hash = time.Now(), hashOf(f.data)
	s.store.files = append(s.store.files, f)
	s.store.counts.Files++
}

// fileLocked returns a file that was uploaded, or nil.
func (s *Server) fileLocked(id string) *batchFile {
	for _, f := range s.store.files {
		if f.id == id {
			return f
		}
	}
	return nil
}

// batchLocked returns a batch of an API, or nil.
func (s *Server) batchLocked(api batchAPI, id string) *batch {
	for _, b := range s.store.batches {
		if b.id == id && b.api == api {
			return b
		}
	}
	return nil
}

// withBatch answers with what do makes of a batch, or with what is wrong with what was asked of it.
func (s *Server) withBatch(api batchAPI, id string, missing *apiProblem, do func(*batch) ([]byte, *apiProblem)) reply {
	s.mu.Lock()
	body, wrong := []byte(nil), missing
	if b := s.batchLocked(api, id); b != nil {
		body, wrong = do(b)
	}
	s.mu.Unlock()
	if wrong != nil {
		return s.refuseBatch(api, wrong)
	}
	return reply{status: http.StatusOK, body: body}
}

// listedLocked returns the batches of an API that lists show, newest first.
func (s *Server) listedLocked(api batchAPI, now time.Time) []*batch {
	var list []*batch
	for _, b := range slices.Backward(s.store.batches) {
		if b.api == api && now.Sub(b.created) >= s.config.Batches.ListDelay {
			list = append(list, b)
		}
	}
	return list
}

// shortfall is why a batch may not be created now.
type shortfall struct {
	why   string
	model string // whose tokens are too many
	wait  time.Duration
}

// roomLocked says why a batch may not be created now; nil if it may.
func (s *Server) roomLocked(b *batch) *shortfall {
	limits := &s.config.Batches
	lastHour, pending, enqueued := []time.Time(nil), 0, map[string]int{}
	for _, other := range s.store.batches {
		if age := b.created.Sub(other.created); age < time.Hour {
			lastHour = append(lastHour, other.created)
		}
		if other.phase(b.created) == phaseEnded {
			continue
		}
		pending += len(other.lines)
		for model, n := range other.tokens {
			enqueued[model] += n
		}
	}
	if limits.PerHour > 0 && len(lastHour) >= limits.PerHour {
		wait := lastHour[len(lastHour)-limits.PerHour].Add(time.Hour).Sub(b.created)
		return &shortfall{why: whyPerHour, wait: wait}
	}
	if limits.Pending > 0 && b.api.traits().pending && pending+len(b.lines) > limits.Pending {
		return &shortfall{why: whyPending}
	}
	if limits.EnqueuedTokens > 0 && b.api.traits().enqueues {
		for _, model := range sortedKeys(b.tokens) {
			if enqueued[model]+b.tokens[model] > limits.EnqueuedTokens {
				return &shortfall{why: whyEnqueued, model: model}
			}
		}
	}
	return nil
}

// The names under which [BatchStats] counts what was refused.
const (
	whyPerHour  = "per_hour"
	whyPending  = "pending"
	whyEnqueued = "enqueued_tokens"
)

// startLocked has a batch run that has its lines and problems.
func (s *Server) startLocked(b *batch) {
	s.store.counts.Batches++
	b.serial = s.store.counts.Batches
	b.latency = s.config.Batches.Latency
	every := func(n int) bool { return n > 0 && b.serial%n == 0 }
	switch {
	case len(b.problems) > 0:
		b.outcome, b.lines, b.tokens = outcomeInvalid, nil, nil
	case every(s.config.Batches.ExpireEvery):
		b.outcome = outcomeExpired
	case every(s.config.Batches.FailEvery):
		b.outcome = outcomeBroken
	}
	s.drawLocked(b)
	switch {
	case b.outcome == outcomeCompleted:
		b.runs = len(b.lines)
	case b.outcome == outcomeExpired && b.api.traits().partial:
		b.runs = len(b.lines) / 2
	case b.outcome == outcomeBroken && !b.api.traits().breaks:
		b.outcome, b.runs = outcomeCompleted, len(b.lines)
		for i := range b.lines {
			b.lines[i].fate = fateBroken
		}
	}
	s.creditLocked(b, 0, b.runs, 1)
	s.store.batches = append(s.store.batches, b)
}

// cancelLocked cancels a batch; it reports false if there is nothing left to cancel.
func (s *Server) cancelLocked(b *batch, now time.Time) bool {
	if b.phase(now) == phaseEnded {
		return false
	}
	if b.outcome == outcomeCancelled {
		return true
	}
	ran := b.done(now)
	if !b.api.traits().partial {
		ran = 0
	}
	s.creditLocked(b, ran, b.runs, -1)
	b.outcome, b.cancelled, b.runs = outcomeCancelled, now, ran
	return true
}

// creditLocked counts lines that run, by their place in the order, or takes them back.
func (s *Server) creditLocked(b *batch, from, to, sign int) {
	for _, i := range b.order[from:max(from, to)] {
		l := &b.lines[i]
		if l.fate != fateAnswered {
			s.store.counts.Failed += sign
			continue
		}
		s.store.counts.Answered += sign
		if s.config.NoStats {
			continue
		}
		s.store.ran[lineHash(l.id, l.body)] += int32(sign)
		a := s.accounts[l.hash]
		a.paid += uint32(sign)
		s.accounts[l.hash] = a
	}
}

// forgetLocked deletes a batch with what it has.
func (s *Server) forgetLocked(b *batch) {
	delete(s.store.results, b.output.id)
	s.store.batches = slices.DeleteFunc(s.store.batches, func(other *batch) bool { return other == b })
}
