//go:build linux

package proc_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-llm/sluice/proc"
)

func newSpool(t rapid.TB, path string, most int64) proc.Spool {
	s, err := proc.NewSpool(path, most)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A spool keeps what this says of the whole.
func keptOf(all []byte, most int) []byte {
	tail := most / 8
	head := most - tail
	if len(all) <= most {
		return all
	}
	mark := fmt.Sprintf("\n[… %d bytes are left out here …]\n", len(all)-most)
	return bytes.Join([][]byte{all[:head], []byte(mark), all[len(all)-tail:]}, nil)
}

func TestASpoolKeepsTheBeginningAndTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stdout.log")
	rapid.Check(t, func(rt *rapid.T) {
		most := rapid.IntRange(1, 2000).Draw(rt, "most")
		s := newSpool(rt, path, int64(most))
		var all []byte
		for _, n := range rapid.SliceOfN(rapid.IntRange(1, 1500), 0, 12).Draw(rt, "pieces") {
			piece := make([]byte, n)
			for i := range piece {
				piece[i] = byte(len(all) + i*i>>3)
			}
			all = append(all, piece...)
			if _, err := s.End().Write(piece); err != nil {
				rt.Fatal(err)
			}
			if rapid.Bool().Draw(rt, "pause") {
				time.Sleep(50 * time.Microsecond)
			}
		}
		looked, err := s.Close()
		if err != nil {
			rt.Fatal(err)
		}
		file, err := os.ReadFile(path)
		want := keptOf(all, most)
		if err != nil || !bytes.Equal(file, want) || !bytes.Equal(looked, want) {
			rt.Fatalf("most %d of %d: %d bytes in the file, %d looked at, want %d, error %v", most, len(all), len(file), len(looked), len(want), err)
		}
	})
}

// Whoever left its group may have the pipe, and write for ever.
func TestASpoolDoesNotWaitForWhoWritesOn(t *testing.T) {
	s := newSpool(t, filepath.Join(t.TempDir(), "stdout.log"), 1<<10)
	fd, err := syscall.Dup(int(s.End().Fd()))
	if err != nil {
		t.Fatal(err)
	}
	writer := os.NewFile(uintptr(fd), "writer")
	var writers sync.WaitGroup
	for range 16 {
		writers.Go(func() {
			for b := make([]byte, 64<<10); ; {
				if _, err := writer.Write(b); err != nil {
					return
				}
			}
		})
	}
	done := make(chan error, 1)
	go func() { _, err := s.Close(); done <- err }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it waits")
		writer.Close()
	}
	writers.Wait()
	writer.Close()
}

func TestALongOutputIsLookedAtByItsEnds(t *testing.T) {
	s := newSpool(t, filepath.Join(t.TempDir(), "stdout.log"), 16<<20)
	fmt.Fprint(s.End(), "first\n")
	for b := bytes.Repeat([]byte("x"), 1<<20); b != nil; {
		for range 5 {
			_, _ = s.End().Write(b)
		}
		b = nil
	}
	fmt.Fprint(s.End(), "\nlast\n")
	looked, err := s.Close()
	if err != nil || len(looked) != 4<<20 || !bytes.HasPrefix(looked, []byte("first\n")) || !bytes.HasSuffix(looked, []byte("x\nlast\n")) {
		t.Errorf("%d bytes, error %v", len(looked), err)
	}
}
