//! How the processes of a job find each other.
