package local

// AtStep sets the function that is called after each step of taking and removing a snapshot.
func AtStep(do func(string)) { step = do }
