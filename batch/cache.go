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
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice/internal/atomicfile"
	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/internal/work"
)

// The files of a cache: its version, and under two digits of its key each answer, which was written under a temporary
// name before.
const (
	cacheVersionFile = "version"
	cacheVersion     = "sluice cache 1\n"
	cacheTemp        = ".tmp-"
	entryMagic       = "sluice-answer 1 "
)

// mostEntry bounds what is read of an entry, far above the longest answer, and mostVersion what is read of the version.
const (
	mostEntry   = 128 << 20
	mostVersion = 1 << 10
)

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

// CacheError is returned by Open for a directory that cannot be the cache. Nothing in it was touched.
type CacheError struct {
	Dir     string
	Problem string
	Advice  string
}

// Error names the directory and the problem.
func (e *CacheError) Error() string { return e.Dir + " " + e.Problem }

// Hint says what can be done.
func (e *CacheError) Hint() string { return e.Advice }

// openCache opens the cache in a directory, or makes it one.
func openCache(dir string, log *slog.Logger) (*cache, error) {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = os.MkdirAll(dir, 0o700)
	case err == nil && !info.IsDir():
		return nil, &CacheError{dir, "is not a directory", "set --cache to another directory"}
	}
	if err != nil {
		return nil, err
	}
	c := &cache{dir: dir, log: log, open: make(map[string]*flight)}
	known, err := c.checkVersion()
	if err != nil {
		return nil, err
	}
	if known {
		err = atomicfile.Probe(filepath.Join(dir, cacheTemp))
	} else {
		err = c.write(cacheVersionFile, []byte(cacheVersion))
	}
	if err != nil {
		return nil, err
	}
	c.sweep()
	return c, nil
}

// checkVersion refuses a directory of another version, or of something else. It says false of one that is new.
func (c *cache) checkVersion() (known bool, err error) {
	for range 2 { // another process may make it a cache meanwhile
		b, err := readPlain(filepath.Join(c.dir, cacheVersionFile), mostVersion)
		switch {
		case errors.Is(err, errNotPlain):
			return false, c.foreign()
		case err == nil && string(b) == cacheVersion:
			return true, nil
		case err == nil && strings.HasPrefix(string(b), "sluice cache "):
			return false, &CacheError{c.dir, fmt.Sprintf("is a cache of version %s, but this program reads version 1", clip(bytes.TrimSpace(b[len("sluice cache "):]))),
				"set --cache to another directory, or remove this cache, which contains only copies of results"}
		case err == nil:
			return false, c.foreign()
		case !errors.Is(err, fs.ErrNotExist):
			return false, err
		}
		entries, err := os.ReadDir(c.dir)
		if err != nil {
			return false, err
		}
		strangers := 0
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), cacheTemp) {
				strangers++
			}
		}
		if strangers == 0 {
			return false, nil
		}
	}
	return false, c.foreign()
}

func (c *cache) foreign() error {
	return &CacheError{c.dir, "contains files that do not belong to a cache", "set --cache to an empty or new directory"}
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

// write puts a file in its place as a whole. An entry that a power cut damages is called again; the version must not be damaged.
func (c *cache) write(name string, text []byte) error {
	path := filepath.Join(c.dir, name)
	o := atomicfile.Options{Draft: filepath.Join(c.dir, cacheTemp+rand.Text()), NoSync: name != cacheVersionFile}
	err := atomicfile.Write(path, o, text)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.Mkdir(filepath.Dir(path), 0o700); err == nil || errors.Is(err, fs.ErrExist) {
			err = atomicfile.Write(path, o, text)
		}
	}
	return err
}

// entry is what stands above the body of an answer.
type entry struct {
	Key          string `json:"key"`
	Status       int    `json:"status"`
	RequestID    string `json:"request_id,omitempty"`
	FinishReason string `json:"finish_reason,omitempty"`
}

// entryName is where the answer of that key is.
func entryName(key string) string { return filepath.Join(key[:2], key) }

// load returns the answer of that key, if there is one.
func (c *cache) load(key string) (work.Result, bool) {
	path := filepath.Join(c.dir, entryName(key))
	b, err := readPlain(path, mostEntry)
	if errors.Is(err, fs.ErrNotExist) {
		return work.Result{}, false
	}
	var e entry
	var body []byte
	if err == nil {
		e, body, err = parseEntry(b)
	}
	if err == nil && e.Key != key {
		err = errors.New("the cache file belongs to another request")
	}
	if err != nil {
		c.spoilt(path, err)
		return work.Result{}, false
	}
	return work.Result{Status: e.Status, RequestID: e.RequestID, FinishReason: e.FinishReason, Payload: body, Cached: true}, true
}

var (
	errDamaged  = errors.New("damaged")
	errNotPlain = errors.New("not a regular file, or too large")
)

// readPlain reads a file of that size at most. Whoever can write to the directory may have put a pipe or a device there,
// which end only when it pleases them.
func readPlain(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > most:
		return nil, errNotPlain
	}
	return os.ReadFile(path)
}

// counts are how many answers it had, and how many it had not. A nil cache has none.
func (c *cache) counts() (hits, misses int) {
	if c == nil {
		return 0, 0
	}
	return int(c.hits.Load()), int(c.misses.Load())
}

// parseEntry reads an entry, all of which its first line answers for.
func parseEntry(b []byte) (e entry, body []byte, err error) {
	first, rest, ok := bytes.Cut(b, []byte("\n"))
	sum := sha256.Sum256(rest)
	if !ok || string(first) != entryMagic+hex.EncodeToString(sum[:]) {
		return e, nil, errDamaged
	}
	head, body, ok := bytes.Cut(rest, []byte("\n"))
	if !ok {
		return e, nil, errDamaged
	}
	if err := json.Unmarshal(head, &e); err != nil || e.Status/100 != 2 {
		return e, nil, errDamaged
	}
	return e, body, nil
}

// spoilt says once that an entry cannot be read. Its request is called, and the entry replaced.
func (c *cache) spoilt(path string, err error) {
	c.damaged.Do(func() {
		c.log.Warn("a cached response cannot be read: the request is sent again", "file", path, "error", err)
	})
}

// store keeps a good answer. If it cannot, the run goes on without.
func (c *cache) store(key string, r *work.Result) {
	head, err := json.Marshal(entry{Key: key, Status: r.Status, RequestID: r.RequestID, FinishReason: r.FinishReason})
	if err == nil {
		text := make([]byte, 0, len(entryMagic)+2*sha256.Size+1+len(head)+1+len(r.Payload))
		text = append(text, entryMagic...)
		sum := sha256.New()
		for _, part := range [][]byte{head, {'\n'}, r.Payload} {
			sum.Write(part)
		}
		text = append(hex.AppendEncode(text, sum.Sum(nil)), '\n')
		text = append(append(text, head...), '\n')
		err = c.write(entryName(key), append(text, r.Payload...))
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
		return sharedBy(&f.result), f.err
	}
	defer c.land(key, f)
	if result, ok := c.find(key, &item); ok {
		f.result, f.err = result, nil
		return result, nil
	}
	c.misses.Add(1)
	f.result, f.err = call(ctx, item)
	if f.err == nil && f.result.Status/100 == 2 {
		c.store(key, &f.result)
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

// sharedBy returns the result for another item with the same request.
func sharedBy(r *work.Result) work.Result {
	return work.Result{Status: r.Status, RequestID: r.RequestID, FinishReason: r.FinishReason, Payload: r.Payload, Cached: true}
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
