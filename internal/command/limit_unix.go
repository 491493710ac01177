//go:build unix

package command

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// limited is a shell that sets limits and becomes the program. Go knows no limits for a process that it starts, and to change
// ours for a moment would be to change those of all that starts meanwhile. The words of the command are its arguments, which no
// shell reads. Descriptor 3 tells us of a refusal: an exit code could be the program's. The soft limit of time stands below the
// hard one, as the kernel looks at the hard one first, and SIGKILL does not say why.
const limited = `[ "$1" = 0 ] || ulimit -v "$1" 2>&3 || exit 126
[ "$2" = 0 ] || { ulimit -S -t "$2" && ulimit -H -t "$3"; } 2>&3 || exit 126
shift 3
exec "$@" 3>&-`

// limit makes the command one that has limits from its first instruction on, as will all that it starts. What is read from the
// file that it returns is why they were refused; it ends when the program begins.
func limit(cmd *exec.Cmd, memory int64, cpu time.Duration) (*os.File, error) {
	if cmd.Err != nil {
		return nil, cmd.Err
	}
	program := cmd.Path
	if !filepath.IsAbs(program) { // then it is where the command runs
		var err error
		if program, err = filepath.Abs(filepath.Join(cmd.Dir, program)); err != nil {
			return nil, err
		}
	}
	if _, err := exec.LookPath(program); err != nil {
		return nil, err // the shell would tell of it as if the program had
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	const kib = 1 << 10
	blocks := (max(0, memory) + kib - 1) / kib
	seconds := int64((max(0, cpu) + time.Second - 1) / time.Second)
	args := []string{"/bin/sh", "-c", limited, "sh"}
	for _, n := range []int64{blocks, seconds, seconds + 1} {
		args = append(args, strconv.FormatInt(n, 10))
	}
	cmd.Args = append(append(args, cmd.Path), cmd.Args[1:]...)
	cmd.Path, cmd.ExtraFiles = args[0], []*os.File{w}
	return r, nil
}
