package cluster_test

import (
	"bytes"
	"net"
	"net/url"
	"sync"
	"testing"
)

// line is a network between a client and an engine that can be cut, held up, or made to lose an answer.
type line struct {
	listener net.Listener
	target   string

	mu   sync.Mutex
	free *sync.Cond
	held bool
	said int    // answers that have passed
	lose int    // answers to lose, each with its connection
	with []byte // nil: any; else only one that has this in it
	open map[net.Conn]bool
}

// newLine leads to the engine at a URL, and has a URL of its own.
func newLine(t *testing.T, engine string) (*line, string) {
	t.Helper()
	u, err := url.Parse(engine)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &line{listener: listener, target: u.Host, open: map[net.Conn]bool{}}
	l.free = sync.NewCond(&l.mu)
	t.Cleanup(func() {
		listener.Close()
		l.hold(false)
		l.cut()
	})
	go l.serve()
	u.Host = listener.Addr().String()
	return l, u.String()
}

// hold stops everything on the line, without a word, or lets it go on.
func (l *line) hold(held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = held
	l.free.Broadcast()
}

// cut ends every connection.
func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		c.Close()
	}
}

// loseAnswers has the next so many answers lost, after the engine has done what was asked.
func (l *line) loseAnswers(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lose, l.with = n, nil
}

// loseAnswerWith has the next answer lost that has a text in it.
func (l *line) loseAnswerWith(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lose, l.with = 1, []byte(text)
}

// answers are how many have passed, ever.
func (l *line) answers() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.said
}

func (l *line) serve() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		engine, err := net.Dial("tcp", l.target)
		if err != nil {
			client.Close()
			continue
		}
		l.mu.Lock()
		l.open[client], l.open[engine] = true, true
		l.mu.Unlock()
		go l.pass(engine, client, false)
		go l.pass(client, engine, true)
	}
}

// pass carries what comes from one side to the other.
func (l *line) pass(to, from net.Conn, answers bool) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err == nil && l.let(buffer[:n], answers) {
			data := buffer[:n]
			if !answers { // an engine that says it is a cluster names addresses that do not lead through here
				data = bytes.ReplaceAll(data, []byte("$7\r\nCLUSTER\r\n"), []byte("$8\r\nXCLUSTER\r\n"))
			}
			_, err = to.Write(data)
		} else if err == nil {
			err = net.ErrClosed
		}
		if err != nil {
			to.Close()
			from.Close()
			l.mu.Lock()
			delete(l.open, from)
			l.mu.Unlock()
			return
		}
	}
}

// let waits while the line is held, and tells whether something may pass.
func (l *line) let(data []byte, answer bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.held {
		l.free.Wait()
	}
	if answer && l.lose > 0 && bytes.Contains(data, l.with) {
		l.lose--
		return false
	}
	if answer {
		l.said++
	}
	return true
}
