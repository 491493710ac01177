package batch

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice/internal/atomicfile"
	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/internal/regular"
	"github.com/sluice-llm/sluice/internal/work"
)

// The files of a cache are in a subdirectory, so that other files in the directory stay. Below that are directories for
// two digits of a key, with a file for each answer, which was written under a temporary name before.
const (
	cacheVersion = "v1"
	cacheTemp    = ".tmp-"
)

// maxEntry bounds the bytes that are read of an entry, far above the longest answer.
const maxEntry = 128 << 20

// cache is a directory of good answers, by what was asked of whom. Several processes may use it at once. It is safe for
// concurrent use.
type cache struct {
	dir string
	log *slog.Logger
	own bool // a Handler of the program makes the responses

	hits, misses       atomic.Int64
	damaged, unwelcome sync.Once // are said once

	mu   sync.Mutex
	open map[string]*flight // by key
}

// flight is a request in flight, or a lookup in the directory. Items with this request share the result.
type flight struct {
	done   chan struct{} // closed when there is a result
	result work.Result
	err    error
}

// join returns the flight of a key. If there is none, it opens one, and says so.
func (c *cache) join(key string) (f *flight, opened bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f = c.open[key]; f != nil {
		return f, false
	}
	f = &flight{done: make(chan struct{}), err: errNoAnswer}
	c.open[key] = f
	return f, true
}

// land ends a flight. Items that come later find its answer in the directory, if it is good.
func (c *cache) land(key string, f *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, key)
	close(f.done)
}

// errNoAnswer is the error of a flight whose handler did not return.
var errNoAnswer = errors.New("the equal request has no result, because its handler did not return")

// openCache opens the cache in a directory, or makes it one.
func openCache(dir string, log *slog.Logger) (*cache, error) {
	c := &cache{dir: filepath.Join(dir, cacheVersion), log: log, open: make(map[string]*flight)}
	err := os.MkdirAll(c.dir, 0o700)
	if err == nil {
		err = atomicfile.Probe(filepath.Join(c.dir, cacheTemp))
	}
	if err != nil {
		return nil, err
	}
	c.sweep()
	return c, nil
}

// sweep removes what killed processes left half written. Nobody writes for an hour.
func (c *cache) sweep() {
	entries, _ := os.ReadDir(c.dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && strings.HasPrefix(e.Name(), cacheTemp) && time.Since(info.ModTime()) > time.Hour {
			os.Remove(filepath.Join(c.dir, e.Name()))
		}
	}
}

// path is where the answer of a key is.
func (c *cache) path(key string) string { return filepath.Join(c.dir, key[:2], key) }

// write puts an entry in its place as a whole. One that a power cut damages is called again.
func (c *cache) write(key string, text []byte) error {
	path := c.path(key)
	err := os.Mkdir(filepath.Dir(path), 0o700)
	if err == nil || errors.Is(err, fs.ErrExist) {
		err = atomicfile.Write(path, atomicfile.Options{Draft: filepath.Join(c.dir, cacheTemp+rand.Text()), NoSync: true}, text)
	}
	return err
}

// entry is what stands above the body of an answer.
type entry struct {
	Key string `json:"key"`
	work.Response
}

// load returns the answer of that key, if there is one.
func (c *cache) load(key string) (work.Result, bool) {
	path := c.path(key)
	b, err := readEntry(path)
	if errors.Is(err, fs.ErrNotExist) {
		return work.Result{}, false
	}
	var e entry
	if err == nil {
		e, err = parseEntry(b)
	}
	if err == nil && e.Key != key {
		err = errors.New("the cache file belongs to another request")
	}
	if err != nil {
		c.spoilt(path, err)
		return work.Result{}, false
	}
	return work.Result{Response: e.Response, Cached: true}, true
}

var errDamaged = errors.New("damaged")

func readEntry(path string) ([]byte, error) {
	file, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxEntry))
}

// counts are how many answers it had, and how many it had not. A nil cache has none.
func (c *cache) counts() (hits, misses int) {
	if c == nil {
		return 0, 0
	}
	return int(c.hits.Load()), int(c.misses.Load())
}

// parseEntry reads an entry, all of which its first line answers for.
func parseEntry(b []byte) (e entry, err error) {
	first, rest, ok := bytes.Cut(b, []byte("\n"))
	sum := sha256.Sum256(rest)
	if !ok || string(first) != hex.EncodeToString(sum[:]) {
		return e, errDamaged
	}
	head, body, ok := bytes.Cut(rest, []byte("\n"))
	if !ok || json.Unmarshal(head, &e) != nil || e.Status/100 != 2 {
		return e, errDamaged
	}
	e.Payload = body
	return e, nil
}

// spoilt says once that an entry cannot be read. Its request is called, and the entry replaced.
func (c *cache) spoilt(path string, err error) {
	c.damaged.Do(func() {
		c.log.Warn("a cached response cannot be read: the request is sent again", "file", path, "error", err)
	})
}

// store keeps a good answer. If it cannot, the run goes on without.
func (c *cache) store(key string, r *work.Response) {
	head, err := json.Marshal(entry{key, *r})
	if err == nil {
		text := slices.Concat(make([]byte, 2*sha256.Size), []byte("\n"), head, []byte("\n"), r.Payload)
		sum := sha256.Sum256(text[2*sha256.Size+1:])
		hex.Encode(text, sum[:])
		err = c.write(key, text)
	}
	if err != nil {
		c.unwelcome.Do(func() { c.log.Warn("responses cannot be saved in the cache", "error", err) })
	}
}

// handle returns the cached response of an item or the result of an equal request in flight. Otherwise, it makes the call, and caches a
// successful response.
func (c *cache) handle(ctx context.Context, item work.Item, call work.HandlerFunc) (work.Result, error) {
	key := c.key(&item)
	f, opened := c.join(key)
	if !opened {
		if err := work.Await(ctx, f.done); err != nil {
			return work.Result{}, err
		}
		c.hits.Add(1)
		return work.Result{Response: f.result.Response, Cached: true}, f.err
	}
	defer c.land(key, f)
	if result, ok := c.find(key, &item); ok {
		f.result, f.err = result, nil
		return result, nil
	}
	c.misses.Add(1)
	f.result, f.err = call(ctx, item)
	if f.err == nil && f.result.Status/100 == 2 {
		c.store(key, &f.result.Response)
	}
	return f.result, f.err
}

// find returns the cached response of an item, if there is one that this run accepts.
func (c *cache) find(key string, item *work.Item) (work.Result, bool) {
	result, ok := c.load(key)
	of := item.Data.(*call)
	if !ok || of.terms.check != nil && of.terms.check(item.ID, of.endpoint, result.Payload) != nil {
		return work.Result{}, false
	}
	c.hits.Add(1)
	return result, true
}

// key is a hash of what a response depends on: the providers and addresses, the model, the endpoint and the request. Keys and
// headers are no part of it.
func (c *cache) key(item *work.Item) string {
	call := item.Data.(*call)
	h := sha256.New()
	parts := append(call.route.identity(item.Lane, call.endpoint), item.Lane, call.endpoint.String())
	if c.own {
		parts = append(parts, "handler")
	}
	for _, part := range parts {
		fmt.Fprintf(h, "%d %s\n", len(part), part) // so that no two lists of parts are one text
	}
	body := call.body
	if call.line != nil { // it has a correction
		body = call.line.body
	}
	h.Write(jsonscan.AppendCompact(nil, body))
	return hex.EncodeToString(h.Sum(nil))
}
