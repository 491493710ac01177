package cli

import (
	"context"
	"os"
	"time"
)

// fileStates tell by name which files were there, and whether they are still the same; nil is a file that was not. Editors
// put another file in the place of one, so that its identity tells more than its time.
type fileStates map[string]os.FileInfo

// note takes a file in as it is now.
func (f fileStates) note(name string) {
	info, err := os.Stat(name)
	if err != nil {
		info = nil
	}
	f[name] = info
}

// now are the same files as they are now.
func (f fileStates) now() fileStates {
	now := make(fileStates, len(f))
	for name := range f {
		now.note(name)
	}
	return now
}

// same reports whether these are states of the same files, and none of them differs.
func (f fileStates) same(other fileStates) bool {
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

// lookEvery is how often files are looked at. One that differs is read when it does so twice in the same way: it is complete then.
const lookEvery = time.Second

// follow calls reload when the files are others than they were, or again asks for it, until ctx ends. It returns the files as
// they were before it read them, also those that were wrong or not there; nil: it did not come to that.
func (f fileStates) follow(ctx context.Context, again <-chan struct{}, reload func() fileStates) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var now, last fileStates
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
		if f = now; ctx.Err() != nil { // what is wrong is not read again before it changes
			return
		}
		if next := reload(); next != nil {
			f = next
		}
	}
}
