package cluster_test

import (
	"bytes"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// wire is a network between a member and the engine that can fail.
type wire struct {
	url    string
	target string

	mu    sync.Mutex
	conns map[net.Conn]bool
	down  bool
	lose  bool // messages arrive and replies to them do not,
	heard int  // but for so many
}

func newWire(t *testing.T, url string) *wire {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	w := &wire{url: "redis://" + listener.Addr().String(), target: strings.TrimPrefix(url, "redis://"), conns: make(map[net.Conn]bool)}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go w.carry(conn)
		}
	}()
	return w
}

func (w *wire) carry(member net.Conn) {
	defer member.Close()
	engine, err := net.Dial("tcp", w.target)
	if err != nil {
		return
	}
	defer engine.Close()
	w.mu.Lock()
	if w.down {
		w.mu.Unlock()
		return
	}
	w.conns[member] = true
	w.mu.Unlock()
	var said atomic.Bool
	go func() {
		io.Copy(engine, single{member, &said})
		engine.Close()
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := engine.Read(buf)
		if err != nil {
			return
		}
		w.mu.Lock()
		lose := w.lose && said.Load()
		if lose && w.heard > 0 {
			w.heard--
			lose = false
		}
		w.mu.Unlock()
		if lose {
			return
		}
		if _, err := member.Write(buf[:n]); err != nil {
			return
		}
	}
}

// single has the engine say that it is none of a cluster: members would be told where it is, and go there by themselves. It
// notes when a ledger's message comes by.
type single struct {
	net.Conn
	said *atomic.Bool
}

func (s single) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if bytes.Contains(b[:n], []byte("EVALSHA")) {
		s.said.Store(true)
	}
	for _, topology := range []string{"$5\r\nSLOTS", "$6\r\nSHARDS"} {
		copy(b[:n], bytes.ReplaceAll(b[:n], []byte(topology), []byte(topology[:len(topology)-1]+"Z")))
	}
	return n, err
}

// falter has the network carry so many replies, and then none.
func (w *wire) falter(replies int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down, w.lose, w.heard = false, true, replies
}

// set has the network fail from now on, in either way, or work.
func (w *wire) set(down, lose bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down, w.lose = down, lose
	if down {
		for conn := range w.conns {
			conn.Close()
		}
		clear(w.conns)
	}
}
