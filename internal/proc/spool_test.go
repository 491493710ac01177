package proc_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-llm/sluice/internal/proc"
)

// A spool keeps what this says of the whole.
func keptOf(all []byte, most int) []byte {
	tail := most / 8
	head := most - tail
	if len(all) <= most {
		return all
	}
	mark := fmt.Sprintf("\n[… %d bytes omitted …]\n", len(all)-most)
	return bytes.Join([][]byte{all[:head], []byte(mark), all[len(all)-tail:]}, nil)
}

func TestASpoolKeepsTheBeginningAndTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stdout.log")
	rapid.Check(t, func(rt *rapid.T) {
		most := rapid.IntRange(1, 2000).Draw(rt, "most")
		s, err := proc.NewSpool(path, int64(most))
		if err != nil {
			rt.Fatal(err)
		}
		var all []byte
		for _, n := range rapid.SliceOfN(rapid.IntRange(1, 1500), 0, 12).Draw(rt, "pieces") {
			piece := make([]byte, n)
			for i := range piece {
				piece[i] = byte(len(all) + i*i>>3)
			}
			all = append(all, piece...)
			if _, err := s.Write(piece); err != nil {
				rt.Fatal(err)
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

func TestALongOutputIsLookedAtByItsEnds(t *testing.T) {
	s, err := proc.NewSpool(filepath.Join(t.TempDir(), "stdout.log"), 16<<20)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(s, "first\n")
	for range 5 {
		_, _ = s.Write(bytes.Repeat([]byte("x"), 1<<20))
	}
	fmt.Fprint(s, "\nlast\n")
	looked, err := s.Close()
	if err != nil || len(looked) != 4<<20 || !bytes.HasPrefix(looked, []byte("first\n")) || !bytes.HasSuffix(looked, []byte("x\nlast\n")) {
		t.Errorf("%d bytes, error %v", len(looked), err)
	}
}
