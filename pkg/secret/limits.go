package secret

// recentChallenges is how many challenges of ours are remembered, to recognize
// one that comes back on another connection.
const recentChallenges = 256
