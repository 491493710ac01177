// Package atomicfile replaces files as a whole and locks files between processes.
package atomicfile

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Options are how a file is replaced. The zero value suits most files.
type Options struct {
	// Mode is the file's, under the umask. Default 0600.
	Mode fs.FileMode

	// Draft is the name of the file that is written and takes the other's place at last. A file at that name is removed: only one
	// process may use it at a time, as the holder of a lock. Default: a new name beside the file.
	Draft string

	// Backup reports whether the file that is replaced is kept beside it, as path + ".bak". Nil keeps none.
	Backup func() bool

	// NoSync lets a power cut lose or damage the file.
	NoSync bool
}

// Write replaces the file at path by one with these contents. At any instant, also of a crash, one of them is there as a whole; once
// Write has returned nil, also after a power cut, where the system can.
func Write(path string, o Options, contents ...[]byte) error {
	return Fill(path, o, func(f *os.File) error {
		for _, b := range contents {
			if _, err := f.Write(b); err != nil {
				return err
			}
		}
		return nil
	})
}

// Fill is Write for contents that a function writes. If that fails, the file stays as it was.
func Fill(path string, o Options, fill func(*os.File) error) (err error) {
	if o.Mode == 0 {
		o.Mode = 0o600
	}
	owned := o.Draft != ""
	if !owned {
		o.Draft = path + "." + rand.Text() + ".tmp"
	}
	defer func() {
		if wrong, ok := errors.AsType[*fs.PathError](err); ok && wrong.Path == o.Draft {
			wrong.Path = path // the other name is of no use to the reader
		}
	}()
	const flag = os.O_WRONLY | os.O_CREATE | os.O_EXCL // follows no link
	f, err := os.OpenFile(o.Draft, flag, o.Mode)
	if owned && errors.Is(err, fs.ErrExist) && os.Remove(o.Draft) == nil { // a process that was killed left it
		f, err = os.OpenFile(o.Draft, flag, o.Mode)
	}
	if err != nil {
		return err
	}
	err = fill(f)
	if err == nil && !o.NoSync {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil && o.Backup != nil && o.Backup() {
		err = backUp(path, o.Draft+".bak")
	}
	if err == nil {
		err = os.Rename(o.Draft, path)
	}
	if err != nil {
		os.Remove(o.Draft)
		return err
	}
	if !o.NoSync {
		SyncDir(filepath.Dir(path))
	}
	return nil
}

// backUp keeps a file as its backup. On file systems without links, the backup alone is there for an instant.
func backUp(path, link string) error {
	os.Remove(link)
	err := os.Link(path, link)
	if err == nil {
		err = os.Rename(link, path+".bak")
		os.Remove(link) // which is still there where both are one file already
	} else if !errors.Is(err, fs.ErrNotExist) {
		err = os.Rename(path, path+".bak")
	}
	if errors.Is(err, fs.ErrNotExist) { // another process removed it
		return nil
	}
	return err
}

// Probe reports whether a file can be made beside path, and leaves nothing there.
func Probe(path string) error {
	errProbe := errors.New("only a probe")
	if err := Fill(path, Options{NoSync: true}, func(*os.File) error { return errProbe }); !errors.Is(err, errProbe) {
		return err
	}
	return nil
}

// SyncDir makes what a directory lists outlast a power cut, where the system can.
func SyncDir(dir string) {
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync()
		d.Close()
	}
}
