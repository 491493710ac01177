//go:build !planted

package planted

// Every reports false: no fault is planted, and the compiler removes what would act as one.
func Every(string, int64) bool { return false }
