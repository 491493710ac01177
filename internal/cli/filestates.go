package cli

import "os"

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
