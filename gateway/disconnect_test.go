package gateway_test

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/suite"
)

// descriptors is how many this process has open; 0 where that cannot be told.
func descriptors() int {
	names, _ := os.ReadDir("/proc/self/fd")
	return len(names)
}

func TestClientsThatDisconnectLeaveNothingBehind(t *testing.T) {
	x, front := served(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if !strings.Contains(string(b), `"stream":true`) {
			select {
			case <-time.After(time.Duration(rand.N(20)) * time.Millisecond):
			case <-r.Context().Done():
				return
			}
			whole(w, chatAnswer)
			return
		}
		for range 10 {
			events(w, chatChunks[:strings.Index(chatChunks, "\n\n")+2])
			select {
			case <-time.After(time.Duration(rand.N(5)) * time.Millisecond):
			case <-r.Context().Done():
				return
			}
		}
		events(w, usageChunk+"\n\ndata: [DONE]\n\n")
	}, func(s *setting) {
		s.limits.Limits.Concurrency = 16
		s.Early = time.Millisecond
	})
	// What stays open for the next call is there before the count.
	post(t, front.URL+"/v1/chat/completions", `{"model":"m"}`)
	settle(x, 0, 0, 300*time.Millisecond)
	goroutines, files := runtime.NumGoroutine(), descriptors()

	n := suite.Size(60, 10_000)
	var all sync.WaitGroup
	turns := make(chan struct{}, 64)
	for range n {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			leaveAtRandom(front.Listener.Addr().String())
		})
	}
	all.Wait()
	begun := time.Now()
	after, open := settle(x, goroutines, files, time.Minute)
	t.Logf("%d clients left, after which it took %v until all was back", n, time.Since(begun).Round(time.Millisecond))
	if after > goroutines {
		b := make([]byte, 1<<16)
		t.Errorf("%d goroutines became %d\n%s", goroutines, after, b[:runtime.Stack(b, true)])
	}
	if open > files {
		t.Errorf("%d descriptors became %d", files, open)
	}
}

// settle waits until no permit is held and no more goroutines and files exist than given, at most maxWait. It returns their numbers.
func settle(x *relayed, goroutines, files int, maxWait time.Duration) (int, int) {
	x.Wait()
	for end := time.Now().Add(maxWait); time.Now().Before(end); {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		x.closeIdle()
		time.Sleep(20 * time.Millisecond)
		if runtime.NumGoroutine() <= goroutines && descriptors() <= files && x.inFlight() == 0 {
			break
		}
	}
	return runtime.NumGoroutine(), descriptors()
}

// leaveAtRandom makes a call, and goes at some instant: within the head, the body, the wait, the answer, or after it.
func leaveAtRandom(addr string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.N(60_000))*time.Microsecond)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return
	}
	defer conn.Close()
	path := []string{"/v1/chat/completions", "/v1/messages", "/v1/responses"}[rand.N(3)]
	// Every other body is too long to be kept in memory.
	body := `{"model":"m","stream":` + strconv.FormatBool(rand.N(3) > 0) + `,"messages":[]` + strings.Repeat(" ", rand.N(2)*rand.N(64<<10)) + `}`
	text := "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
	if rand.N(4) == 0 {
		text = text[:rand.N(len(text))]
	}
	if _, err := io.WriteString(conn, text); err != nil {
		return
	}
	deadline, _ := ctx.Deadline()
	_ = conn.SetReadDeadline(deadline)
	_, _ = io.Copy(io.Discard, conn)
	if tcp, ok := conn.(*net.TCPConn); ok && rand.N(2) == 0 {
		_ = tcp.SetLinger(0) // a reset rather than an end
	}
}
