package proc

import (
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/proc/agents"
)

// Lane is what the tests of limits reach.
type Lane = lane

// NewLane returns the lane of a run without items.
func NewLane() *Lane { return newLane(&Config{}) }

// State has it take in what a command states of usage windows.
func (l *lane) State(stated ...agents.WindowUse) {
	t := &try{ran: true, meaning: agents.Meaning{Windows: stated}}
	l.ended(t, new(sluice.Outcome))
}

// Outlook is what is shown of them.
func (l *lane) Outlook() string { return l.outlook(time.Now()) }

// Ended has it take in a try.
func (l *lane) Ended(started, ended time.Time, o *sluice.Outcome) (another bool) {
	return l.ended(&try{started: started, ended: ended, meaning: agents.Meaning{Kind: o.Kind}}, o)
}

// NewSpool makes what keeps one stream of a command.
var NewSpool = newSpool

// Close ends a spool, and returns what a command's end needs of it.
func (s *spool) Close() ([]byte, error) { return s.close() }

// What the tests of persistent workers reach.
type (
	WorkersConfig    = workersConfig
	Workers          = workers
	Request          = request
	Answer           = answer
	WorkerDiedError  = workerDiedError
	ProtocolError    = protocolError
	SilentError      = silentError
	QuarantinedError = quarantinedError
	FutileError      = futileError
)

var (
	NewWorkers       = newWorkers
	ErrWorkersClosed = errWorkersClosed
)

// Alive is how many workers have not ended.
func (ws *workers) Alive() int {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return len(ws.live)
}

// Said is what a worker's output came to that had these items in hand, each from when the one before was answered.
func Said(pieces [][]byte, most int, ids ...string) (answers []Answer, half string, err *ProtocolError) {
	t := talk{most: most}
	next := func() {
		if len(ids) > 0 && !t.open {
			t.hand(ids[0])
			ids = ids[1:]
		}
	}
	next()
	for _, piece := range pieces {
		t.read(piece)
		if a := t.take(); a != nil {
			answers = append(answers, *a)
			next()
		}
	}
	half = t.end()
	if a := t.take(); a != nil {
		answers = append(answers, *a)
	}
	return answers, half, t.broken
}

// AsideHolds is how much memory is held after so many bytes were said aside.
func AsideHolds(bytes int) int {
	var a aside
	for piece := make([]byte, 10_000); bytes > 0; bytes -= len(piece) {
		_, _ = a.Write(piece)
	}
	return cap(a.kept)
}
