package signals

import (
	"context"
	"os"
	"time"
)

// Files are the states of files by name, to detect changes; nil is a missing file. Editors replace files, so that the identity of a file
// says more than its time.
type Files map[string]os.FileInfo

// Note adds a file as it is now.
func (f Files) Note(name string) {
	info, err := os.Stat(name)
	if err != nil {
		info = nil
	}
	f[name] = info
}

// now returns the same files as they are now.
func (f Files) now() Files {
	now := make(Files, len(f))
	for name := range f {
		now.Note(name)
	}
	return now
}

// same reports whether these are the same files, unchanged.
func (f Files) same(other Files) bool {
	if len(f) != len(other) {
		return false
	}
	for name, info := range f {
		before, known := other[name]
		switch {
		case !known || (info == nil) != (before == nil):
			return false
		case info != nil && (!os.SameFile(info, before) || info.Size() != before.Size() || !info.ModTime().Equal(before.ModTime())):
			return false
		}
	}
	return true
}

// lookEvery is the interval between two looks at the files. A changed file is read if two looks find the same change, because it is complete then.
const lookEvery = time.Second

// follow calls read when a file changes, or when again asks for it, until ctx ends. read returns the files as they were before it read
// them, including invalid and missing ones; nil: the same files.
func (f Files) follow(ctx context.Context, again <-chan struct{}, read func() Files) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var now, last Files
	for {
		select {
		case <-ctx.Done():
			return
		case <-again:
			now = f.now()
		case <-tick.C:
			if now = f.now(); now.same(f) || !now.same(last) {
				last = now
				continue
			}
		}
		last = nil
		if f = now; ctx.Err() != nil { // a wrong file is not read again before it changes
			return
		}
		if next := read(); next != nil {
			f = next
		}
	}
}
