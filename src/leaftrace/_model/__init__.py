"""The neutral description of a trained model: losses, starting score, leaf rule, trees and rows."""
