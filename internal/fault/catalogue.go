package fault

import "slices"

// Code is the stable code of a kind of error.
type Code = string

// Codes of errors. The catalogue has their causes.
const (
	Usage       = "E001"
	Value       = "E002"
	Conflict    = "E003"
	Missing     = "E004"
	Settings    = "E010"
	Provider    = "E011"
	Key         = "E012"
	Limits      = "E013"
	Price       = "E014"
	Input       = "E020"
	Changed     = "E021"
	InUse       = "E022"
	Output      = "E023"
	File        = "E024"
	Disk        = "E025"
	OpenFiles   = "E026"
	State       = "E027"
	KeyRejected = "E030"
	Quota       = "E031"
	Unreachable = "E032"
	SameError   = "E033"
	Upstreams   = "E034"
	Rejected    = "E035"
	Cap         = "E040"
	Bounds      = "E041"
	Threshold   = "E042"
	Batches     = "E050"
	Pending     = "E051"
	Redis       = "E060"
	RedisURL    = "E061"
	Job         = "E062"
	Program     = "E070"
	Blocked     = "E071"
	Interrupted = "E090"
	Failed      = "E099"
)

// Entry is the description of a code.
type Entry struct {
	Code  Code
	Exit  int
	Cause string
	Fix   string // hint of errors without their own hint
}

var catalogue = []Entry{
	{Usage, ExitUsage, "an unknown command, flag or argument", "see sluice --help"},
	{Value, ExitUsage, "an invalid value of a flag", "see sluice COMMAND --help"},
	{Conflict, ExitUsage, "flags that cannot be combined, or a flag that needs another", "omit or add a flag"},
	{Missing, ExitUsage, "a flag, argument or input is missing", "add it"},
	{Settings, ExitUsage, "an invalid settings file", "correct the field: https://github.com/sluice-llm/sluice/blob/main/docs/reference/settings.md describes the fields"},
	{Provider, ExitUsage, "the provider or its address is unknown", "set --provider, or --base-url for an OpenAI-compatible server"},
	{Key, ExitUsage, "no API key, or a malformed API key", "export the variable of the key, or use --env-file"},
	{Limits, ExitUsage, "no limit is known", "set --rpm and --tpm, or measure them with sluice find --model M"},
	{Price, ExitUsage, "a price is unknown", "set --price IN/OUT"},
	{Input, ExitUsage, "an invalid item in the input", "correct the line"},
	{Changed, ExitUsage, "an item differs from the recorded item", "run the changed items again with --redo changed, or keep the recorded results with --redo none"},
	{InUse, ExitUsage, "another run uses the output", "wait for that run, or use another output"},
	{Output, ExitUsage, "the file is not an output of Sluice, or belongs to another input", "use another output"},
	{File, ExitUsage, "a file cannot be read or written", "name a file that exists, or a directory that you can write to"},
	{Disk, ExitFailed, "the disk is full, or the output is damaged", "free space on the disk, then resume with the same command"},
	{OpenFiles, ExitFailed, "the process may not open more files", "raise the limit of open files with ulimit -n 4096, or lower --concurrency, then resume with the same command"},
	{State, ExitFailed, "no run was found", "name the output of a run: sluice status OUT.jsonl"},
	{KeyRejected, ExitFailed, "the provider rejected the key", "check the key, then resume with the same command"},
	{Quota, ExitFailed, "the account has no credit", "add credit or raise the spend limit, then resume with the same command"},
	{Unreachable, ExitFailed, "the provider does not respond", "check the network and --base-url, then resume with the same command"},
	{SameError, ExitFailed, "the last items all failed with the same error", "correct the cause of the error, then resume with the same command"},
	{Upstreams, ExitFailed, "no upstream is left", "correct the cause for each upstream, then resume with the same command"},
	{Rejected, ExitFailed, "the provider rejected the request", "read the message with sluice explain"},
	{Cap, ExitCap, "a cap or deadline stopped the run", "run the same command again, which has a full new cap"},
	{Bounds, ExitThreshold, "the plan exceeds --max-cost or --deadline", "plan fewer requests, or raise the bound"},
	{Threshold, ExitThreshold, "a measurement missed its threshold", "read the events with sluice report --events FILE"},
	{Batches, ExitFailed, "batches are lost, or the Batch API refused them", "see sluice status OUT.jsonl"},
	{Pending, ExitUsage, "batches of an earlier run are pending", "collect them with the same run command, or cancel them with --cancel"},
	{Redis, ExitFailed, "Redis does not respond", "check the server and the network"},
	{RedisURL, ExitUsage, "invalid settings of Redis", "correct the URL of --redis, or the password in its variable"},
	{Job, ExitUsage, "another process, input or version has this run at Redis", "use another output, and the same release on all hosts"},
	{Program, ExitFailed, "a command cannot be started", "check that the program exists and is executable, then resume with the same command"},
	{Blocked, ExitItems, "items that others depend on failed", "correct their cause, then run the same command again"},
	{Interrupted, ExitInterrupted, "a signal stopped the command", "resume with the same command"},
	{Failed, ExitFailed, "another error", ""},
}

// Catalogue returns all codes.
func Catalogue() []Entry { return slices.Clone(catalogue) }

// EntryOf returns the description of a code.
func EntryOf(code Code) Entry {
	for _, e := range catalogue {
		if e.Code == code {
			return e
		}
	}
	panic("fault: " + code + " is not in the catalogue")
}
