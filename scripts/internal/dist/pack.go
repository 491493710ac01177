// Package dist makes what a release consists of beside its binaries: archives that are the same wherever and whenever they are
// made, and lists of what is in a binary.
package dist

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// Pack writes the files below dir into an archive, which is named .tar.gz or .zip, below a directory of the archive's name.
// Equal files make equal archives: all are of that time and of nobody, in the order of their names, and may be read by all,
// and run by all where their owner may run them.
func Pack(archive, dir string, at time.Time) (err error) {
	base := filepath.Base(archive)
	stem, form := strings.TrimSuffix(base, ".zip"), packZip
	if stem == base {
		stem, form = strings.TrimSuffix(base, ".tar.gz"), packTar
	}
	if stem == base {
		return fmt.Errorf("%s is neither a .tar.gz nor a .zip", archive)
	}
	files, err := list(dir)
	if err != nil {
		return err
	}
	f, err := os.Create(archive)
	if err != nil {
		return err
	}
	if err = form(f, dir, stem, files, at.UTC()); err != nil {
		f.Close()
		return fmt.Errorf("%s: %w", archive, err)
	}
	return f.Close()
}

// file is one of an archive.
type file struct {
	name string // below the directory, with slashes
	mode fs.FileMode
	size int64
}

// list returns the files below dir, in the order of their names.
func list(dir string) (files []file, err error) {
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s is no file", p)
		}
		rel, err := filepath.Rel(dir, p)
		mode := fs.FileMode(0o644)
		if info.Mode()&0o100 != 0 || strings.HasSuffix(p, ".exe") {
			mode = 0o755
		}
		files = append(files, file{filepath.ToSlash(rel), mode, info.Size()})
		return err
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("there is no file in %s", dir)
	}
	return files, err
}

func packTar(to io.Writer, dir, stem string, files []file, at time.Time) error {
	zipped, err := gzip.NewWriterLevel(to, gzip.BestCompression)
	if err != nil {
		return err
	}
	w := tar.NewWriter(zipped)
	for _, f := range files {
		err := w.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: path.Join(stem, f.name), Mode: int64(f.mode), Size: f.size, ModTime: at, Format: tar.FormatUSTAR,
		})
		if err != nil {
			return err
		}
		if err := add(w, dir, f.name); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return zipped.Close()
}

func packZip(to io.Writer, dir, stem string, files []file, at time.Time) error {
	w := zip.NewWriter(to)
	for _, f := range files {
		h := &zip.FileHeader{Name: path.Join(stem, f.name), Method: zip.Deflate, Modified: at}
		h.SetMode(f.mode)
		one, err := w.CreateHeader(h)
		if err != nil {
			return err
		}
		if err := add(one, dir, f.name); err != nil {
			return err
		}
	}
	return w.Close()
}

// add copies a file into an archive.
func add(to io.Writer, dir, name string) error {
	f, err := os.Open(filepath.Join(dir, filepath.FromSlash(name)))
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(to, f)
	return err
}
