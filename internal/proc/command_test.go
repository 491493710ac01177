package proc_test

import (
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/internal/proc"
)

func TestAValueInAHereDocumentIsRefused(t *testing.T) {
	for _, line := range []string{
		"cat <<EOF\n{x}\nEOF",
		"cat <<'EOF'\n{x}\nEOF",
		"cat <<-\"EOF\" | tr a b\n\t{x}\n\tEOF",
		"cat <<EOF\ndon't {x}\nEOF",
		"cat <<EOF\nstill\nEOF\necho {x}",
		"cat << {x}",
		"cat <<  {x}",
		"cat <<E{x}\nE",
		"cat <<EOF | grep {x}\nfixed\nEOF",
		"echo \"$(cat <<'EOF'\n{x}\nEOF\n)\"",
		"echo \"`cat <<EOF\n{x}\nEOF\n`\"",
		"echo `cat <<EOF\nfixed\nEOF\n` \"{x}\"",
		"echo \"$(echo \"a\" 'b\"'; cat <<EOF\n{x}\nEOF\n)\"",
		"echo $((1 + $(cat <<EOF\n{x}\nEOF\n)))",
		"# don't\ncat <<EOF\n{x}\nEOF",
	} {
		if got, err := proc.ShellLine(line); err == nil || !strings.Contains(err.Error(), "{x} stands in a here-document") {
			t.Errorf("%q gives %q, error %v", line, got, err)
		}
	}
	for _, line := range []string{"echo $(({x}+1))", "echo \"$(( (1 + {x}) ))\"", "echo $(( \"{x}\" ))"} {
		if got, err := proc.ShellLine(line); err == nil || !strings.Contains(err.Error(), "{x} stands in arithmetic") {
			t.Errorf("%q gives %q, error %v", line, got, err)
		}
	}
	for line, want := range map[string]string{
		"echo $((1 + $(echo {x} | wc -c)))":          `echo $((1 + $(echo "${1}" | wc -c)))`,
		"grep {x} <<EOF\n'fixed\nEOF":                "grep \"${1}\" <<EOF\n'fixed\nEOF",
		"echo '<<' {x}":                              `echo '<<' "${1}"`,
		`echo "a << b" \<< c {x}`:                    `echo "a << b" \<< c "${1}"`,
		`echo "$(date) << b" {x}`:                    `echo "$(date) << b" "${1}"`,
		"# don't << x\necho {x}":                     "# don't << x\necho \"${1}\"",
		"true;# (<< x\necho \"$(# << )\necho {x})\"": "true;# (<< x\necho \"$(# << )\necho \"${1}\")\"",
		"echo $((1<<2)) {x}":                         `echo $((1<<2)) "${1}"`,
		"echo \"$(((1)<<2))\"\necho {x}":             "echo \"$(((1)<<2))\"\necho \"${1}\"",
		"cat <<<{x}":                                 `cat <<<"${1}"`,
		"echo '{x}' \"{x}\"":                         `echo ''"${1}"'' "${2}"`,
		`echo "$(echo {x} '{x}' "{x}") {x}" {x}`:     `echo "$(echo "${1}" ''"${2}"'' "${3}") ${4}" "${5}"`,
		"echo \"`echo {x} \\\"{x}\\\"` {x}\"":        "echo \"`echo \"${1}\" \\\"${2}\\\"` ${3}\"",
	} {
		if got, err := proc.ShellLine(line); err != nil || got != want {
			t.Errorf("%q gives %q, error %v, want %q", line, got, err, want)
		}
	}
}
