package proc

import "context"

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

func (ws *workers) Call(ctx context.Context, req request) (answer, error) { return ws.call(ctx, req) }

func (ws *workers) Close() error { return ws.close() }

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
