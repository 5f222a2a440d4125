"""RLlib's names of what a result has of learning: `result["info"][LEARNER_INFO][policy_id][LEARNER_STATS_KEY]`."""

__all__ = ["LEARNER_INFO", "LEARNER_STATS_KEY"]

LEARNER_INFO, LEARNER_STATS_KEY = "learner", "learner_stats"
