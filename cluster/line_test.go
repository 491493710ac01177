package cluster

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
)

// Site is the Redis of a test: one in memory, which needs no sockets and follows the clock of a bubble, or a real one.
type Site struct {
	*Line
	Memory *miniredis.Miniredis // nil: a real one
	url    string
}

// NewSite returns a Redis in memory, which is closed with the test.
func NewSite(t testing.TB) *Site {
	s := &Site{Line: NewLine(), Memory: miniredis.NewMiniRedis(), url: "redis://127.0.0.1:1"}
	t.Cleanup(s.Memory.Close)
	return s
}

// SiteAt returns the Redis at a URL.
func SiteAt(url string) *Site { return &Site{Line: NewLine(), url: url} }

// Aside returns the same Redis over a Line of its own.
func (s *Site) Aside() *Site { return &Site{Line: NewLine(), Memory: s.Memory, url: s.url} }

// Open opens a Cluster over the Line.
func (s *Site) Open(ctx context.Context, cfg Config) (*Cluster, error) {
	at, err := parseURL(s.url)
	if err != nil {
		return nil, err
	}
	client, err := s.Client()
	if err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return open(ctx, cfg, at, faulty{redis{client}, s.Line})
}

// Client returns a client without the Line, to look at the keys and to change them.
func (s *Site) Client() (rueidis.Client, error) {
	o, err := rueidis.ParseURL(s.url)
	if err != nil {
		return nil, err
	}
	o.DisableCache, o.ForceSingleClient = true, true
	if s.Memory != nil {
		o.DialCtxFn = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) { return s.Memory.Dial() }
	}
	return rueidis.NewClient(o)
}

// Line makes the connections between Clusters and Redis fail. It is safe for concurrent use.
type Line struct {
	mu      sync.Mutex
	free    chan struct{}   // closed while nothing is held
	cuts    context.Context // ends by
	cut     context.CancelFunc
	down    bool
	refuse  func(command string) string
	skip    int // replies to deliver before
	lose    int // replies are lost,
	with    string
	replies int
	delay   time.Duration // of replies
}

// NewLine returns a Line without failures.
func NewLine() *Line {
	l := &Line{free: make(chan struct{})}
	l.cuts, l.cut = context.WithCancel(context.Background())
	close(l.free)
	return l
}

// Hold stops everything without an error, or lets it continue.
func (l *Line) Hold(held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.free:
		if held {
			l.free = make(chan struct{})
		}
	default:
		if !held {
			close(l.free)
		}
	}
}

// Cut ends all calls that are under way with an error.
func (l *Line) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut()
	l.cuts, l.cut = context.WithCancel(context.Background())
}

// Down has all calls fail from now on, or work again.
func (l *Line) Down(down bool) {
	l.mu.Lock()
	l.down = down
	l.mu.Unlock()
	if down {
		l.Cut()
	}
}

// Lose loses the replies to the next n calls, after Redis has executed them.
func (l *Line) Lose(n int) { l.lost(0, n, "") }

// LoseWith loses the next reply that contains a text.
func (l *Line) LoseWith(text string) { l.lost(0, 1, text) }

// LoseAfter delivers n replies and loses all later ones.
func (l *Line) LoseAfter(n int) { l.lost(n, 1<<30, "") }

func (l *Line) lost(skip, lose int, with string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.skip, l.lose, l.with = skip, lose, with
}

// Restore ends all failures.
func (l *Line) Restore() {
	l.Down(false)
	l.Hold(false)
	l.Lose(0)
	l.Delay(0)
	l.Refuse(nil)
}

// Refuse has calls answered with the error that refuse returns for the command or script; "" is none.
func (l *Line) Refuse(refuse func(command string) string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuse = refuse
}

// Delay has each reply arrive so much later.
func (l *Line) Delay(delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = delay
}

// Replies returns how many were delivered.
func (l *Line) Replies() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.replies
}

// wait returns when nothing is held.
func (l *Line) wait(ctx, cuts context.Context) error {
	l.mu.Lock()
	free, down := l.free, l.down
	l.mu.Unlock()
	if down {
		return syscall.ECONNREFUSED
	}
	select {
	case <-free:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-cuts.Done():
		return io.EOF
	}
}

// deliver reports whether a reply arrives.
func (l *Line) deliver(r reply) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.skip > 0:
		l.skip--
	case l.lose > 0 && contains(r, l.with):
		l.lose--
		return false
	}
	l.replies++
	return true
}

func contains(r reply, part string) bool {
	if strings.Contains(r.text, part) {
		return true
	}
	for _, m := range r.list {
		if contains(m, part) {
			return true
		}
	}
	return false
}

// pass makes a call over the Line.
func (l *Line) pass(ctx context.Context, command string, call func(context.Context) (reply, error)) (reply, error) {
	l.mu.Lock()
	cuts, refuse, delay := l.cuts, l.refuse, l.delay
	l.mu.Unlock()
	if err := l.wait(ctx, cuts); err != nil {
		return reply{}, err
	}
	if refuse != nil {
		if text := refuse(command); text != "" {
			return reply{}, redisError(text)
		}
	}
	broken, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(cuts, stop)()
	r, err := call(broken)
	time.Sleep(delay)
	if cuts.Err() != nil {
		return reply{}, io.EOF
	}
	if held := l.wait(ctx, cuts); held != nil {
		return reply{}, held
	}
	if err == nil && !l.deliver(r) {
		return reply{}, io.EOF
	}
	return r, err
}

// faulty is an engine behind a Line.
type faulty struct {
	connection
	line *Line
}

func (f faulty) eval(ctx context.Context, s *script, keys, args []string) (reply, error) {
	return f.line.pass(ctx, "EVAL", func(ctx context.Context) (reply, error) { return f.connection.eval(ctx, s, keys, args) })
}

func (f faulty) do(ctx context.Context, command ...string) (reply, error) {
	return f.line.pass(ctx, command[0], func(ctx context.Context) (reply, error) { return f.connection.do(ctx, command...) })
}

func (f faulty) read(ctx context.Context, stream, after string) ([]reply, error) {
	r, err := f.line.pass(ctx, "XREAD", func(ctx context.Context) (reply, error) {
		entries, err := f.connection.read(ctx, stream, after)
		return reply{list: entries}, err
	})
	return r.list, err
}

func (f faulty) listen(ctx context.Context, channels []string, ready func(), heard func(channel, message string)) error {
	_, err := f.line.pass(ctx, "SUBSCRIBE", func(ctx context.Context) (reply, error) {
		return reply{}, f.connection.listen(ctx, channels, ready, func(channel, message string) {
			if f.line.wait(ctx, ctx) == nil {
				heard(channel, message)
			}
		})
	})
	return err
}
