package proc

import (
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sluice-llm/sluice/internal/proc/agents"
)

// mostRecord is how much of a file is read in which a command says what became of it.
const mostRecord = 1 << 20

// records are the files in which a command may say what became of it: ResultFile, and those of tries of its own that it put aside as
// failed. What was there before the command is not of it: some of that is our own, of the tries before.
type records struct {
	own    string // the directory of its item
	result []string
	before map[string]stamp
}

// stamp tells a file from what another one wrote in its place.
type stamp struct {
	at   time.Time
	size int64
}

// watch looks at the records of a job before its command starts.
func (x *Exec) watch(j *job) *records {
	r := &records{own: j.dir.path, before: make(map[string]stamp)}
	if filepath.IsLocal(j.resultFile) {
		r.result = append(r.result, filepath.Join(j.dir.path, j.resultFile))
	}
	if shared := x.sharedFile(j); shared != "" {
		r.result = append(r.result, shared)
	}
	for _, name := range r.names() {
		if info, err := os.Stat(name); err == nil {
			r.before[name] = stamp{info.ModTime(), info.Size()}
		}
	}
	return r
}

// sharedFile is where ResultFile may be outside of the item's directory; "" is nowhere.
func (x *Exec) sharedFile(j *job) string {
	if j.resultFile == "" {
		return ""
	}
	return filepath.Clean(j.resultFile)
}

func (r *records) names() []string {
	names := r.result[:len(r.result):len(r.result)]
	aside := filepath.Join(r.own, failedName)
	for _, pattern := range []string{"*/result.json", "*/*/result.json"} {
		found, _ := fs.Glob(os.DirFS(aside), pattern) // its own name is no pattern then
		for _, name := range found {
			names = append(names, filepath.Join(aside, name))
		}
	}
	return names
}

// read reads the records that are new, but for one that may be of another item.
func (r *records) read(doubtful string) (all []agents.Record) {
	for _, name := range r.names() {
		info, err := os.Stat(name)
		if err != nil || !info.Mode().IsRegular() || info.Size() > mostRecord || name == doubtful ||
			r.before[name] == (stamp{info.ModTime(), info.Size()}) {
			continue
		}
		if body, err := os.ReadFile(name); err == nil {
			all = append(all, agents.Record{Name: name, Body: body})
		}
	}
	return all
}

// claims are the files outside of the items' directories into which commands that run now may write what became of them. The zero
// value is ready, and safe for concurrent use.
type claims struct {
	mu    sync.Mutex
	files map[string]*claim
}

// claim is one such file.
type claim struct {
	commands int  // that run now
	shared   bool // some of them ran at once: what is in the file may be of any
}

// take claims a file for a command; "" is none. The returned function gives it back, and returns its name if it may hold the words of
// another command.
func (c *claims) take(file string) (leave func() (doubtful string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.files == nil {
		c.files = make(map[string]*claim)
	}
	one := c.files[file]
	if one == nil {
		one = new(claim)
		c.files[file] = one
	}
	one.commands++
	one.shared = one.shared || one.commands > 1
	return sync.OnceValue(func() string {
		c.mu.Lock()
		defer c.mu.Unlock()
		if one.commands--; one.commands == 0 {
			delete(c.files, file)
		}
		if one.shared {
			return file
		}
		return ""
	})
}
